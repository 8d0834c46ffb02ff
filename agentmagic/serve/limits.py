"""Every limit for what clients of a served notebook send, as one table.

A client has the token, and is not trusted for that: it may flood, repeat and go away without a word.
"""

REQUEST_BYTES = 4 * 1024 * 1024  # of one request; the mcp library's own limit too
VALUES = 50_000  # in the JSON of one request; 150,000 stopped the engine's loop for 0.9 s
ALL_BYTES = 32 * 1024 * 1024  # of all requests that are being answered
REQUEST_SECONDS = 20.0  # from the first byte of a request, or of a connection, to the last one
CONNECTIONS = 400  # each costs a file descriptor, of which a kernel often has 1,024
REQUESTS = 200  # at once, of all clients with a token
SESSIONS = 256  # of the protocol, at once; a client that was killed leaves one behind
IDLE = 4 * 3600.0  # seconds after which a session without an open request is forgotten
DEPTH = 64  # of the arguments of a call
CLIENTS = 32  # names that are told apart; each has its own approvals
WAITING = 32  # calls of one client that are not answered yet
HELD = 32  # calls of stateless clients whose user is asked; a further question gets no answer
ANSWER_SECONDS = 120.0  # that a stateless client has to call again with an answer: the session waits for it meanwhile
QUESTION_TEXT = 10_000  # characters
ANSWER_TEXT = 20_000  # characters
NAME = 40  # characters of a client's name
TOOL_NAME = 128  # characters of the name of a tool that is called, as in the protocol
URI = 200  # characters of an address that is repeated in an error
PAGE_TEXT = 400_000  # characters of a resource, the last ones
PROGRESS_TEXT = 500  # characters
PROGRESS_SECONDS = 0.05  # between two notices of progress of one call at least
CALLS_SHOWN = 50  # in the output of the cell that serves; then it begins anew
CLOSING = 2.0  # seconds that open answers get when the server ends
