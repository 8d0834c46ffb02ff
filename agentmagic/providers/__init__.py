"""The model providers: `base` defines what a model is, and `registry` finds a model by its name."""
