"""Builds the prompt of a turn: fills in values in braces and project commands, and makes attachments."""
