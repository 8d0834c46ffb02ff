"""Permission for tool calls: the user's rules, and questions to the user."""
