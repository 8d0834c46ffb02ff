"""The agent loop runs one turn: ask the model, run its tool calls, and repeat until the model answers."""
