"""The part of a growing conversation that is sent to the model, and the project's rules and skills."""
