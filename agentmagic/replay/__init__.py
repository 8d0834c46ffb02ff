"""Runs on tape: recorded to a cassette, and played back with each request compared with the recorded one."""
