"""Which tool calls may run: the rules of the user, and asking the user."""
