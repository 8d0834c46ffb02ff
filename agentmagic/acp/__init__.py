"""Turns of outside agents, over the Agent Client Protocol. The acp library is imported when the first agent starts."""
