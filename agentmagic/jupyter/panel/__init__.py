"""The chat panel, which is shown in the output of a cell or beside the notebook."""
