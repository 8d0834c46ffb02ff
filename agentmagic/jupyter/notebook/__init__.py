"""The notebook of a kernel: its variables, its file, its cells and what its tools print."""
