"""Runs the turns of cells, shows them in the cells' outputs, and asks the user their questions."""
