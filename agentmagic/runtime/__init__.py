"""Where things run: the engine thread, the main thread, timeouts."""
