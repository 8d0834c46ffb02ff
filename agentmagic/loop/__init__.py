"""Run one turn: ask the model, run its tool calls, and repeat until it answers."""
