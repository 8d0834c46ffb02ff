"""Runs the turns of cells, shows each turn in its cell's output, and puts the turn's questions to the user."""
