"""Decides whether tool calls may run, by the user's rules and by questions to the user."""
