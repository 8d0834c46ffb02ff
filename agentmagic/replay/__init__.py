"""Records agent runs to a cassette file, and replays them without a model.

In a replay, each model request is compared with the recorded request, and gets the recorded answer.
"""
