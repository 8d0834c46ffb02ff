"""Where the models are: `base` says what a model is, `registry` finds one by name."""
