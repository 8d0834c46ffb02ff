"""Every limit for what an outside agent sends, as one table; messages have those of `tools.mcp.limits` too.

An outside agent is a program of others that reads pages and files of others: it may flood, nest and babble.
"""

PER_SECOND = 2000  # messages; a faster agent has to wait, and the engine goes on
DEPTH = 64  # of the JSON of one message
OPEN_REQUESTS = 32  # permissions that are not answered yet
TEXT = 5_000_000  # characters of one prompt's answer, reasoning and updates included
CALLS = 2000  # of one prompt
ID = 200  # characters of the id of a session or a call
TITLE = 300  # characters
ARGUMENTS = 100_000  # characters of JSON
RESULT = 200_000  # characters of one result
IMAGE = 5_000_000  # bytes of base64 in a result
DIFF_LINES = 400  # of one changed file
PLAN = 50  # entries
PLAN_TEXT = 300  # characters of an entry
OPTIONS = 20  # of a permission request
OPENING = 60.0  # seconds until its session is open
QUIET = 0.25  # seconds without news after which announced calls are taken to be under way
ENDING = 0.5  # seconds that a cancelled prompt gets to end; then the process is ended
EARLIER = 60_000  # characters of the earlier conversation that a new session of the agent is told
FILES = 50  # that a turn has changed, as its diffs tell
