"""All limits on data from an outside agent; its messages must also keep those of `tools.mcp.limits`.

An outside agent is third-party software that reads untrusted pages and files, so its output is not trusted either.
"""

PER_SECOND = 2000  # messages; the output of a faster agent is read more slowly
DEPTH = 64  # levels of nesting in the JSON of one message
OPEN_REQUESTS = 32  # permission requests that are not answered yet
TEXT = 5_000_000  # characters that an agent sends for one prompt: answer, reasoning and updates
CALLS = 2000  # calls during one prompt
ID = 200  # characters of the id of a session or a call
TITLE = 300  # characters of a call's title
ARGUMENTS = 100_000  # characters of a call's arguments, as JSON
RESULT = 200_000  # characters of one result
IMAGE = 5_000_000  # bytes of base64 in a result
DIFF_LINES = 400  # lines shown of the diff of one file
PLAN = 50  # entries of a plan
PLAN_TEXT = 300  # characters of one plan entry
OPTIONS = 20  # options of a permission request
OPENING = 60.0  # seconds that the agent may take to open a session
QUIET = 0.25  # seconds without updates after which announced calls count as started
ENDING = 0.5  # seconds that a cancelled prompt may take to end, before the process is ended
EARLIER = 60_000  # characters of the earlier conversation that a new session of the agent is sent
FILES = 50  # changed files that are listed for one turn
