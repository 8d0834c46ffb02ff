"""Builds the prompt of a turn: values in braces, attachments and project commands."""
