"""The magics: their options, commands, completion and what they print."""
