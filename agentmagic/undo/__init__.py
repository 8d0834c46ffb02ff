"""Watches what tools change in the variables of a notebook, and restores it on undo."""
