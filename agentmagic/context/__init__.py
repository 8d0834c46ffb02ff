"""Chooses the part of a growing conversation that is sent to the model, and reads the project's rules and skills."""
