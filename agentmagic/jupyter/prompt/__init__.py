"""Prompts of typed text, and what they attach."""
