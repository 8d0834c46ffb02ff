"""The turns of cells: run, shown, asked about, answered."""
