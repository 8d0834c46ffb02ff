"""Every limit for what clients of a served notebook send, as one table.

A client has the token, and is not trusted for that: it may flood, repeat and go away without a word.
"""

REQUEST_BYTES = 4 * 1024 * 1024  # of one request; the mcp library's own limit too
REQUESTS = 200  # at once, of all clients; the server answers further ones with 503
SESSIONS = 64  # of the protocol, at once
IDLE = 24 * 3600.0  # seconds after which a session without a request is forgotten
CLIENTS = 32  # names that are told apart; each has its own approvals
WAITING = 32  # calls of one client that are not answered yet
NAME = 40  # characters of a client's name
PAGE_TEXT = 400_000  # characters of a resource, the last ones
PROGRESS_TEXT = 500  # characters
PROGRESS_SECONDS = 0.1  # between two notices of progress of one call at least
CALLS_SHOWN = 50  # in the output of the cell that serves; then it begins anew
CLOSING = 2.0  # seconds that open answers get when the server ends
