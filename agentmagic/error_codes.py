"""A general explanation of each error code, with advice. The message of an error describes the single case."""

from collections.abc import Mapping

from agentmagic import errors
from agentmagic.text import did_you_mean

PAGE = "docs/reference/errors.md"
"""The page of the documentation that lists the messages of each code; each code is a heading."""

MEANINGS: Mapping[str, str] = {
    "turn-failed": (
        "Something that agentmagic did not foresee ended the turn. The message has the words of the code that failed. "
        "Type %agent debug for the log; if the cause is not in your own code, report it with that log."
    ),
    "key-missing": (
        "The provider of the model needs a key, and none was found. Set the environment variable that the message "
        "names, write it into a .env file, or keep it in the system keyring; the model local: needs no key."
    ),
    "key-refused": (
        "The provider does not take the key. Check that the key is whole, that it is not revoked, and that it belongs "
        "to this provider and base URL."
    ),
    "rate-limited": (
        "The provider got too many requests, or your quota is used up. agentmagic has waited and tried again as often "
        "as it may. Wait and run the cell again, or raise the quota at the provider."
    ),
    "context-too-long": (
        "The conversation is longer than the window of the model. Shorten it with %agent compact, begin anew with "
        "%agent reset, send less of the data, or choose a model with a larger window (%agent models)."
    ),
    "request-refused": (
        "The provider, or the model on this machine, does not take the request, and would refuse it again. The "
        "message says what it objects to; %agent inspect shows the request."
    ),
    "empty-answer": (
        "The model ended its answer without a word and without a call. Ask again, or ask for less at once."
    ),
    "malformed-call": (
        "The model wrote a call of a tool, or an answer, that cannot be read. Ask again; if that happens often, "
        "choose a model that calls tools better."
    ),
    "provider-unavailable": (
        "The provider cannot be reached, or it is down. Check the network, the proxy and the base URL; for a model on "
        "this machine, check that its server runs."
    ),
    "stream-broken": (
        "The answer broke off before its end. Ask again; if a proxy stands between, let it pass streams."
    ),
    "provider": "The model could not answer. The message has the cause, often in the words of the provider.",
    "invalid-output": (
        "The answer does not have the form that was asked for, also after the model was asked to correct it. Make the "
        "form simpler, describe its fields, or choose a stronger model."
    ),
    "turn-timeout": (
        "The turn took longer than it may, and was stopped; what was finished is kept. Give it more time with "
        "--timeout (timeout= in code), or ask for less."
    ),
    "budget": (
        "A budget is used up, or it cannot be kept: of the turn, the session, the day, the month or the class. Raise "
        "the limit that the message names, or go on in the next period."
    ),
    "no-tools": (
        "The model called a tool, and the turn has none. Mark a function with @tool, connect a server with %mcp add, "
        "or leave out --no-tools."
    ),
    "session-busy": (
        "The session runs one turn at a time, and one is under way. Wait for it, answer what it asks, or stop it. "
        "%%agent NAME begins a second conversation beside it."
    ),
    "missing-extra": (
        "The feature needs a package that is not installed. Run the command in the message, and restart the kernel. "
        "python -m agentmagic doctor lists all that is missing."
    ),
    "unknown-model": (
        "No provider or model has the name that was written. Write provider:model; %agent models lists the models."
    ),
    "config": (
        "A file of settings or a table of servers cannot be read, or it names something that cannot be. Correct the "
        "file at the place that the message names."
    ),
    "journal": (
        "A saved conversation cannot be read, or cannot be written. The file was left as it is. Name another file, or "
        "take up another conversation: %agent sessions lists them."
    ),
    "cassette": (
        "A recording cannot be read, or cannot be written, or it is not whole. Undo the edit with git, or record the "
        "cell again with %agent record. python -m agentmagic cassette verify FILE checks a whole file."
    ),
    "replay-mismatch": (
        "A replayed cell does not do what was recorded. The message names what has changed. Undo the change to keep "
        "the recording, or record the cell again with %agent record."
    ),
    "tool-server": (
        "A server of tools cannot be started or reached, or it refused what it was asked. %mcp shows the servers and "
        "what is wrong with them; %mcp restart NAME tries again."
    ),
    "tool": "A tool says what went wrong with its call. The words are for the model, which reads them and goes on.",
    "map-failed": (
        "A map ended before all of its rows were asked. The rows that have an answer are in the result; mend the "
        "cause and run the cell again with the same file to ask only the others."
    ),
    "bridge-link": (
        "The bridge to a served kernel lost its kernel, or the kernel refused it. Run %agent serve in the notebook "
        "again; look at what was done before you repeat a call."
    ),
    "usage": "Something was asked for that cannot be. The message says what to write instead.",
    "usage-acp": (
        "An outside agent (acp:) was asked for something that it decides itself, or cannot do. Leave that option out, "
        "or choose a model that is no outside agent."
    ),
    "usage-agent": (
        "An argument of Agent(...), or the option of a cell that sets it, has a value that cannot be. The message "
        "names the argument and the values that it takes."
    ),
    "usage-approval": (
        "A rule of approval, or the answer of a permission hook, has a form that cannot be. Write rules as "
        'Rule("deny", "delete_*"), and return allow, ask, deny or None from a hook.'
    ),
    "usage-bill": (
        "A budget of a day or month, or the folder of a bill, cannot be used. Correct the environment variable or the "
        "folder that the message names."
    ),
    "usage-bridge": (
        "python -m agentmagic bridge found no served kernel to join, or more than one. Run %agent serve in the "
        "notebook, or name the notebook."
    ),
    "usage-cell": (
        "An option of a cell names something that cannot be used: a type, a variable, a data frame or a model. "
        "Correct the line of the cell."
    ),
    "usage-classroom": (
        "The teacher has set bounds for the class, and this is outside of them; or the file with the bounds cannot be "
        "read. Students choose something within the bounds; teachers correct the file."
    ),
    "usage-context": (
        "A rule, skill or command of the project is not approved as it is now, or the approval cannot be kept. %agent "
        "rules shows it."
    ),
    "usage-error-codes": "No error has that code. It stands in brackets behind the message, such as [key-missing].",
    "usage-export": (
        "The export cannot be written to that place. Choose another name or folder, or allow that the file is replaced."
    ),
    "usage-history": (
        "The messages that were given are not a conversation. Begin with a message of the user, and give the "
        "instructions to the Agent."
    ),
    "usage-host": (
        "What was asked for works only in a notebook. Load the extension there, or use the methods of the session."
    ),
    "usage-json-schema": (
        "A function cannot be a tool, because a model could not write its arguments as JSON. Add type hints, use "
        "named parameters of simple types, and mend its docstring."
    ),
    "usage-jupyter": "A cell with %%agent has no prompt. Write the prompt below the line.",
    "usage-kit": (
        "A kit holds a release of agentmagic, which pip fetches, or a clone. This agentmagic is no release, so name "
        "the clone that it came from with --source."
    ),
    "usage-lessons": (
        "The lessons cannot be copied from there or to there, or an exercise of a lesson is solved in it. Name a new "
        "folder, and leave --source out, or name a clone of agentmagic with it."
    ),
    "usage-loop": (
        "The turn cannot be run as it was asked for: its tool_choice, its hook, its plan or its tools contradict what "
        "is there. The message names which."
    ),
    "usage-magics": (
        "A line of %%agent, %agent or %mcp cannot be understood, or names something that is not there. %agent help "
        "and %mcp help list the commands, %%agent --help the options."
    ),
    "usage-main": (
        "python -m agentmagic cannot do that with this file or without a person. The message names the option that is "
        "missing."
    ),
    "usage-mapping": (
        "A map cannot be run as it was asked for: its rows, its prompt, its options or its file do not fit. Rows that "
        "were answered before keep their answers."
    ),
    "usage-mcp": "A server of tools is named that is not there, or that is there twice. %mcp lists the servers.",
    "usage-messages": (
        "The prompt is empty, too long, or holds something that no model can be sent. Give text, or parts."
    ),
    "usage-notebook": (
        "The notebook has no variable, session or function of that name, or the name cannot be used. %agent sessions "
        "and %agent tools list those that are there."
    ),
    "usage-panel": "The panel cannot do that now. Write the command in a cell, or wait until the turn is over.",
    "usage-plan": "An option of a plan has a value that cannot be. The message lists the values.",
    "usage-prompt": (
        "A value, file, resource or command that the prompt names cannot be put into it. Correct the name, or give "
        "less of the data: {df:50} sends 50 rows."
    ),
    "usage-providers": (
        "A setting of the model, or what was said of a model with register_model, cannot be. The message names the "
        "setting and the values that it takes."
    ),
    "usage-replay": (
        "The mode of replay does not fit what was asked for, or names no cassette. Choose replay, auto or live, and a "
        "cassette with %agent cassette FILE."
    ),
    "usage-run": "A running turn cannot be asked for that now. Wait until it is over.",
    "usage-run-log": (
        "The run of the notebook cannot be handed in or read. Run the cells first, then %agent hand-in FILE."
    ),
    "usage-runtime": (
        "agentmagic runs in the page, in a browser that cannot wait inside a cell. Open the page in a browser that "
        "can, such as Chrome or Edge, or await the turn."
    ),
    "usage-secrets": "The secret is too short to be blanked without harm to other text. Register a longer one.",
    "usage-serialization": "A line of a saved conversation was not written by agentmagic. Nothing of it was used.",
    "usage-serve": "The notebook is not served, or cannot be. %agent serve begins it.",
    "usage-session": (
        "The session cannot do that in its present state, or it has no such turn. The message says what is there."
    ),
    "usage-settings": (
        "An environment variable, a key or a path cannot be used. Correct the one that the message names."
    ),
    "usage-testing": "A check was made before there was a turn. Ask something first.",
    "usage-tools": (
        "A function cannot be used as a tool in the way it is marked, or an option of a tool cannot be. The message "
        "names the function and what to write."
    ),
    "usage-wheels": (
        "The wheels for another machine cannot be fetched. Check the network, and the --platform and --python-version "
        "that you gave."
    ),
    "usage-widgets": (
        "A command of the panel, or %agent inspect, cannot be carried out: there is no such turn, there is no "
        "notebook, or the page sent something that does not fit. If the page is older than the kernel, reload it."
    ),
}
"""A sentence or two about each code. After a change, run `python -m tests.test_errors` to update the page."""


def find_code(text: str = "") -> str:
    """Return the error code for a code (also in brackets) or an error class that a user typed, "" if unknown."""
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
    """Return the explanation of an error code and the address of its docs. Raises UsageError for an unknown code."""
    if not (code := find_code(text)):
        suggestion = did_you_mean(text, MEANINGS)
        raise errors.UsageError(
            f"No error has the code {text!r}.{suggestion} The code stands in brackets behind the message."
        )
    return f"{code}: {MEANINGS[code]}\n\nThe documentation lists its messages: {PAGE}#{code}"
