"""The history of a session: its turns, and the journal file that stores them."""
