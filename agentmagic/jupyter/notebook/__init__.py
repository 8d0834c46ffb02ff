"""The notebook of a kernel: its variables, file and cells, and the captured output of its tools."""
