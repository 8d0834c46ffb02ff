"""The past of a session: its turns, and the journal file that keeps them."""
