"""One turn: ask the model, run the tool calls, and go on until it answers."""
