"""A general explanation of each error code, with advice. The message of an error describes only the single case."""

from collections.abc import Mapping

from agentmagic import errors
from agentmagic.text import did_you_mean

MEANINGS: Mapping[str, str] = {
    "turn-failed": (
        "An error that agentmagic did not expect ended the turn. The message shows the error of the code that failed. "
        "Type %agent debug for the log; if the cause is not in your own code, report the error with that log."
    ),
    "key-missing": (
        "The provider of the model needs an API key, and agentmagic found none. Set the environment variable that the "
        "message names, write it into a .env file, or store the key in the system keyring. The model `local:` needs "
        "no key."
    ),
    "key-refused": (
        "The provider does not accept the API key. Check that the key is complete, that it is not revoked, and that "
        "it belongs to this provider and base URL."
    ),
    "rate-limited": (
        "The provider got too many requests, or your quota is used up. agentmagic has already waited and tried again "
        "several times. Wait and run the cell again, or raise the quota at the provider."
    ),
    "context-too-long": (
        "The conversation is longer than the context window of the model. Shorten it with %agent compact, start again "
        "with %agent reset, send less data, or choose a model with a larger window (%agent models)."
    ),
    "request-refused": (
        "The provider, or the model on this machine, does not accept the request, and would refuse it again. The "
        "message names the reason; %agent inspect shows the request."
    ),
    "empty-answer": "The answer of the model has no text and no tool call. Ask again, or ask for less at once.",
    "malformed-call": (
        "The model wrote a tool call or an answer that agentmagic cannot read. Ask again; if that happens often, "
        "choose a model that is better at tool calls."
    ),
    "provider-unavailable": (
        "The provider cannot be reached, or it is down. Check the network, the proxy and the base URL. For a model on "
        "this machine, check that its server runs."
    ),
    "stream-broken": (
        "The connection to the provider closed before the end of the answer. Ask again. If you use a proxy, configure "
        "it so that it does not cut streamed answers."
    ),
    "provider": "The model could not answer. The message has the cause, often in the words of the provider.",
    "invalid-output": (
        "The answer does not have the form that you asked for, even after the model was asked to correct it. Simplify "
        "the form, describe its fields, or choose a stronger model."
    ),
    "turn-timeout": (
        "The turn reached its time limit and was stopped; the finished parts are kept. Allow more time with --timeout "
        "(timeout= in code), or ask for less."
    ),
    "budget": (
        "A limit of the cost or tokens is used up, or agentmagic cannot check it, because a price is unknown. It can "
        "be a limit of the turn, the session, the day, the month or a classroom. Raise the limit that the message "
        "names, or continue in the next period."
    ),
    "no-tools": (
        "The model called a tool, but the turn has no tools. Mark a function with @tool, connect an MCP server with "
        "%mcp add, or remove the option --no-tools."
    ),
    "session-busy": (
        "A session runs one turn at a time, and another turn is still running. Wait for its end, answer its question, "
        "or stop it. %%agent NAME starts a second conversation beside it."
    ),
    "missing-extra": (
        "The feature needs a package that is not installed. Run the command in the message, and restart the kernel. "
        "python -m agentmagic doctor lists all missing packages."
    ),
    "unknown-model": (
        "There is no provider or model with this name. Write provider:model; %agent models lists the models."
    ),
    "config": (
        "A settings file or a table of MCP servers cannot be read, or contains an invalid value. Correct the file at "
        "the place that the message names."
    ),
    "journal": (
        "A saved conversation cannot be read or written. The file was not changed. Name another file, or open another "
        "conversation: %agent sessions lists them."
    ),
    "cassette": (
        "A recording (cassette) cannot be read or written, or a part of it is missing. Undo the edit with git, or "
        "record the cell again with %agent record. python -m agentmagic cassette verify FILE checks a whole file."
    ),
    "replay-mismatch": (
        "A replayed cell differs from its recording. The message names the difference. Undo the change to keep the "
        "recording, or record the cell again with %agent record."
    ),
    "tool-server": (
        "An MCP server cannot be started or reached, or it refused a request. %mcp shows the servers and their "
        "errors; %mcp restart NAME tries again."
    ),
    "tool": (
        "A tool reports what went wrong with its call. The message is meant for the model, which reads it and "
        "continues."
    ),
    "map-failed": (
        "A map (one prompt for many rows) ended before it had sent requests for all rows. The result has the rows "
        "with an answer. Remove the cause and run the cell again with the same file: only the other rows are sent."
    ),
    "bridge-link": (
        "The bridge (python -m agentmagic bridge) lost the notebook's kernel, or the kernel refused it. Run %agent "
        "serve in the notebook again. Before you repeat a call, check whether the first one had an effect."
    ),
    "usage": "The request is not possible. The message says what to write instead.",
    "usage-acp": (
        "An option does not work with an outside agent (acp:), because the agent decides this itself or cannot do it. "
        "Remove the option, or choose a model that is not an outside agent."
    ),
    "usage-agent": (
        "An argument of Agent(...), or the cell option that sets it, has an invalid value. The message names the "
        "argument and the valid values."
    ),
    "usage-approval": (
        'A permission rule, or the answer of a permission hook, is invalid. Write rules as Rule("deny", "delete_*"), '
        "and return allow, ask, deny or None from a hook."
    ),
    "usage-bill": (
        "A limit of cost per day or month, or the folder of a cost report, is invalid. Correct the environment "
        "variable or the folder that the message names."
    ),
    "usage-bridge": (
        "python -m agentmagic bridge found no served kernel, or more than one. Run %agent serve in the notebook, or "
        "name the notebook."
    ),
    "usage-cell": (
        "A cell option names a type, a variable, a data frame or a model that cannot be used. Correct the first line "
        "of the cell."
    ),
    "usage-classroom": (
        "A teacher or an administrator has set limits, and this request is outside of them; or the file with the "
        "limits cannot be read. Stay within the limits, or ask the teacher or administrator to correct the file."
    ),
    "usage-context": (
        "A rule, skill or command of the project was not approved in its present form, or the approval cannot be "
        "saved. %agent rules shows it."
    ),
    "usage-error-codes": (
        "There is no error with this code. The code of an error is in brackets after its message, such as "
        "[key-missing]."
    ),
    "usage-export": (
        "The export cannot be written to this place. Choose another name or folder, or allow that the file is replaced."
    ),
    "usage-history": (
        "The given messages are not a valid conversation. Begin with a message of the user, and give the instructions "
        "to the Agent."
    ),
    "usage-host": "This works only in a notebook. Load the extension there, or use the methods of the session.",
    "usage-json-schema": (
        "A function cannot be a tool, because a model could not write its arguments as JSON. Add type hints, use "
        "named parameters of simple types, and correct its docstring."
    ),
    "usage-jupyter": "A cell with %%agent has no prompt. Write the prompt below its first line.",
    "usage-kit": (
        "A kit contains a release of agentmagic, which pip downloads, or a git clone. The installed agentmagic is not "
        "a release, so name its clone with --source."
    ),
    "usage-lessons": (
        "The lessons cannot be copied from this source or to this folder, or the source contains a solved exercise. "
        "Name a new folder, and leave --source out, or name a clone of agentmagic with it."
    ),
    "usage-loop": (
        "The turn cannot run: its tool_choice, hook, plan or tools contradict the agent or the conversation. The "
        "message names the contradiction."
    ),
    "usage-magics": (
        "A line of %%agent, %agent or %mcp is not valid, or names something that does not exist. %agent help and %mcp "
        "help list the commands, %%agent --help lists the options."
    ),
    "usage-main": (
        "python -m agentmagic cannot do this with this file, or it needs a person who answers. The message names the "
        "missing option."
    ),
    "usage-mapping": (
        "A map (one prompt for many rows) cannot run: its rows, its prompt, its options or its file do not fit "
        "together. Rows that already have an answer keep it."
    ),
    "usage-mcp": "There is no MCP server with this name, or there are two. %mcp lists the servers.",
    "usage-messages": (
        "The prompt is empty or too long, or contains something that cannot be sent to a model. Give text, or parts."
    ),
    "usage-notebook": (
        "The notebook has no variable, session or function with this name, or the name cannot be used. %agent "
        "sessions and %agent tools list the existing names."
    ),
    "usage-panel": "The chat panel cannot do this now. Write the command in a cell, or wait until the turn has ended.",
    "usage-plan": "An option of a plan has an invalid value. The message lists the valid values.",
    "usage-prompt": (
        "The prompt names a value, file, resource or command that cannot be inserted. Correct the name, or send less "
        "data: {df:50} sends 50 rows."
    ),
    "usage-providers": (
        "A setting of the model, or a fact given to register_model, is invalid. The message names the setting and the "
        "valid values."
    ),
    "usage-replay": (
        "The replay mode is not possible here, or no cassette is named. Choose replay, auto or live, and name a "
        "cassette with %agent cassette FILE."
    ),
    "usage-run": "A running turn cannot do this now. Wait until it has ended.",
    "usage-run-log": "The run of the notebook cannot be handed in. Run the cells first, then %agent hand-in FILE.",
    "usage-runtime": (
        "agentmagic runs inside the browser here, and this browser cannot wait inside a cell. Open the page in a "
        "browser that can, such as Chrome or Edge, or await the turn."
    ),
    "usage-secrets": "The secret is so short that blanking it would damage other text. Register a longer one.",
    "usage-serialization": "A line of a saved conversation was not written by agentmagic. The line was not used.",
    "usage-serve": "The notebook is not served to other agents, or cannot be. %agent serve starts it.",
    "usage-session": (
        "The session cannot do this in its present state, or it has no such turn. The message says what the session "
        "has."
    ),
    "usage-settings": "An environment variable, a key or a path is invalid. Correct the one that the message names.",
    "usage-testing": "A check was made before the first turn. Run a turn first.",
    "usage-tools": (
        "A function cannot be used as a tool in the way it is marked, or an option of a tool is invalid. The message "
        "names the function and what to write."
    ),
    "usage-user-costs": (
        "The costs of other users cannot be shown: on Windows never, and elsewhere if the folder that you named cannot "
        "be read. Name a folder whose subfolders are the homes of the users."
    ),
    "usage-wheels": (
        "The wheels (Python packages) for another machine cannot be downloaded. Check the network, and the --platform "
        "and --python-version that you gave."
    ),
    "usage-widgets": (
        "A command of the chat panel, or %agent inspect, failed: the turn does not exist, there is no notebook, or "
        "the browser page sent an invalid message. If the page is older than the kernel, reload it."
    ),
}
"""A sentence or two about each code. After a change, run `python -m tests.test_errors` to update the page."""


def find_code(text: str = "") -> str:
    """Return the code for what a user typed: a code (also in brackets) or an error class. Return "" if unknown."""
    code = _codes_of_classes().get(text, text.strip("[].,"))
    return code if code in MEANINGS else ""


def _codes_of_classes() -> dict[str, str]:
    """Return the code of each error class that has been imported so far, by the name of the class."""
    codes, waiting = dict[str, str](), [errors.AgentMagicError]
    while waiting:
        one = waiting.pop()
        codes[one.__name__] = one.code
        waiting += one.__subclasses__()
    return codes


def explain(text: str) -> str:
    """Return the explanation of an error code. Raises UsageError for an unknown code."""
    if not (code := find_code(text)):
        suggestion = did_you_mean(text, MEANINGS)
        raise errors.UsageError(
            f"No error has the code {text!r}.{suggestion} The code stands in brackets behind the message."
        )
    return f"{code}: {MEANINGS[code]}"
