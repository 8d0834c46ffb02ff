"""Writes Python values as text, tables and images, for models and for readers."""
