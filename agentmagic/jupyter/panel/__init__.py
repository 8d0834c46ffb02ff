"""The chat panel, in a cell and beside the notebook."""
