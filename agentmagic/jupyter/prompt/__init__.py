"""Makes prompts from the text that a user types, with the values, files and outputs that the text attaches."""
