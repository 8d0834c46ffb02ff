"""Records runs to a cassette file, and replays them: each request is compared with the recorded request."""
