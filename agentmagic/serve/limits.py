"""All limits on what clients of a served notebook send, in one table.

A client that has the token is still not trusted: it may send too much, repeat requests, or disappear without notice.
"""

REQUEST_BYTES = 4 * 1024 * 1024  # bytes of one request; the mcp library has the same limit
VALUES = 50_000  # values in the JSON of one request; 150,000 blocked the engine's event loop for 0.9 s
ALL_BYTES = 32 * 1024 * 1024  # bytes of all open requests together
REQUEST_SECONDS = 20.0  # time for a whole request, from the opening of the connection or the request's first byte
CONNECTIONS = 400  # open connections; each needs a file descriptor, and a kernel often has only 1,024
REQUESTS = 200  # open requests of all clients that have a token, together
SESSIONS = 256  # open MCP sessions; a client that was killed leaves one behind
IDLE = 4 * 3600.0  # seconds without an open request after which an MCP session is closed
DEPTH = 64  # levels of nesting in the arguments of a call
CLIENTS = 32  # clients with different names; each has its own approvals
WAITING = 32  # calls of one client that are not answered yet
OPEN_QUESTIONS = 32  # calls that wait for an answer through a stateless client; further questions get no answer
ANSWER_SECONDS = 120.0  # a stateless client's time to call again with the answer; no other turn runs meanwhile
QUESTION_TEXT = 10_000  # characters of a question
ANSWER_TEXT = 20_000  # characters of an answer
NAME = 40  # characters of a client's name
TOOL_NAME = 128  # characters of the tool name in a call; MCP has the same limit
URI = 200  # characters of a resource's address that is quoted in an error
PAGE_TEXT = 400_000  # characters of a resource that are sent; of a longer one, the end is sent
PROGRESS_TEXT = 500  # characters of a progress message
PROGRESS_SECONDS = 0.05  # minimum time between two progress messages of one call
CALLS_SHOWN = 50  # calls in the output of the serving cell, before the output is cleared
CLOSING = 2.0  # seconds that open requests have to end when the server stops
