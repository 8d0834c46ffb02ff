"""OpenAI's two APIs, and the servers that are compatible with them."""
