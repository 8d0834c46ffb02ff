"""Faults that are seeded into a copy of the package, to measure how many of them the tests catch."""
