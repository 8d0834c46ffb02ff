"""Turns of outside agents: programs that speak the Agent Client Protocol.

The acp library is imported when the first agent starts.
"""
