"""Limits on the data from an outside agent. Its messages must also keep the limits in `tools.mcp.limits`.

An outside agent is third-party software that reads untrusted pages and files, so its output is not trusted either.
"""

PER_SECOND = 2000  # messages that are read in a second; an agent that sends more has to wait
DEPTH = 64  # levels of nesting in the JSON of one message
OPEN_REQUESTS = 32  # permission requests that are not answered yet
TEXT = 5_000_000  # characters that an agent sends for one prompt: answer, reasoning and updates
CALLS = 2000  # tool calls of the agent during one prompt
ID = 200  # characters of the id of a session or a tool call
TITLE = 300  # characters of the title of a tool call
DETAILS = 2000  # characters of the text that describes a tool call without an input
ARGUMENTS = 100_000  # characters of the arguments of a tool call, as JSON
RESULT = 200_000  # characters of the result of one tool call
IMAGE = 5_000_000  # bytes of base64 in a result
DIFF_LINES = 400  # lines shown of the diff of one file
PLAN = 50  # entries of the plan that an agent reports
PLAN_TEXT = 300  # characters of one plan entry
OPTIONS = 20  # answers, such as "allow once", that a permission request can offer
OPENING = 60.0  # seconds that the agent may take to open a session
QUIET = 0.25  # seconds without a message of the agent, after which its announced tool calls count as started
SILENCE = 0.3  # seconds without text, thought, call or plan, after which the words of an agent's turn have ended
LAST_WORDS = 2.0  # seconds after its response to a prompt, in which an agent's words still belong to that turn
LATE_TEXT = 1000  # characters shown of what an agent sends after its turn has ended
LATE_ENTRIES = 20  # messages, calls and plans shown of what an agent sends after its turn has ended
LATE_IDS = 10_000  # ids of an agent's earlier messages and calls that are kept
ENDING = 0.5  # seconds that a cancelled prompt may take to end, before the agent's process is ended
EARLIER = 60_000  # characters of the earlier conversation that are sent to a new session of the agent
FILES = 50  # changed files that are listed for one turn
