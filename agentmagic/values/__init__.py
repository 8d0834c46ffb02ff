"""Values of Python as a model and a reader see them."""
