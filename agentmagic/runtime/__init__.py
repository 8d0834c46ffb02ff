"""Controls where code runs: on the engine thread, in the main thread, and within time limits."""
