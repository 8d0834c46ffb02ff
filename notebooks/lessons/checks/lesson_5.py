"""Checks of lesson 5: a tool of a server, and a policy for it."""

from agentmagic import ToolDef
from agentmagic.testing import accepts, check, exercise, expect

from . import SAME, prompt_of, results_of


@exercise(
    "1",
    "A tool is a function below the line @returns.tool(), with the parameters title: str and member: str, and a docstring.",
    "Its first line is LOANS[member].remove(title), and it returns a sentence that says what was done.",
)
def check_1(session, loans):
    """Check the tool with another member and another book, and the other tool of the server."""
    check(session).called("give_back", title="Dune", member="Ada")
    hint = "The call has to change LOANS, not only to say that it did. How is an item removed from a list?"
    expect(loans.get("Ada") == [], f"The call has run, and Ada still has {loans.get('Ada')}.", hint)
    (definition,) = [one for one in session.tools if one.name == "give_back"]
    hint = "The exercise is about a server. The mark @returns.tool() makes a function a tool of it."
    expect(definition.server == "returns", f"give_back is a tool of {definition.server}.", hint)
    hint = "The model knows nothing of the tool but its description. Write a docstring."
    expect(definition.description.strip(), "The tool has no description.", hint)
    types = [one.get("type") for one in definition.parameters["properties"].values()]
    expect(types == ["string", "string"], f"The list says that the parameters are {types}.", "Give both the type str.")
    some = accepts(session, "give_back", member="Ada") or accepts(session, "give_back", title="Dune")
    expect(not some, "A call may leave out the title or the member.", "Neither of the two has a value that fits every call.")
    loans["Ben"], loans["Ada"] = ["Emma", "Dune", "Dune Messiah"], ["Persuasion", "Dune"]
    try:
        _check_back(session, loans)
    finally:
        loans["Ben"], loans["Ada"] = [], []


def _check_back(session, loans):
    result = session.call("give_back", title="Dune", member="Ben")
    expect(not result.is_error, f"For another member, the tool failed: {result.text!r:.200}", "Use both parameters.")
    hint = "The tool takes the book that was named from the member who was named, and nothing else."
    right = {"Ada": ["Persuasion", "Dune"], "Ben": ["Emma", "Dune Messiah"]}
    expect(loans == right, "Another member gave a book back, and the lists are not right then.", hint)
    said = (result.structured or {}).get("result", result.text)
    expect(str(said or "").strip(), "The model read nothing.", "Return a sentence for the model.")
    expect("Ada" not in str(said), f"Ben gave a book back, and the model read {said!r:.100}", "The sentence is about this member.")
    result = session.call("loans", member="Ben")
    expect("Emma" in result.text and not result.is_error, "The tool loans does something else now.", SAME)


@exercise(
    "2",
    'Rule("deny", "lend") refuses one tool, and it is stricter than Rule("allow", "*").',
    'Policy([Rule("allow", "*"), Rule("deny", "lend")])',
)
def check_2(session, policy):
    """Check what the policy says of other calls."""
    expect(prompt_of(session) == "What has Ben borrowed?", "The question is another one.", SAME)
    checked = check(session).hint("The tool that only looks has to run. Which rule lets it?").called("loans", member="Ben")
    checked.hint("Of all rules that fit, the strictest holds. Which verdict is stricter than allow?").not_called("lend")
    refused = results_of(session, "lend")
    hint = "The model asked for both calls, and the policy decides. Do not take the call out of the script."
    expect(refused and refused[0].status == "denied", "The policy has not refused lend.", hint)
    for tool, arguments, right in (
        ("lend", {"title": "Dune", "member": "Ada"}, "deny"),
        ("lend", {"title": "Ulysses", "member": "Ben"}, "deny"),
        ("loans", {"member": "Ada"}, "allow"),
    ):
        said = policy.strictest(ToolDef(tool, "", server="desk"), arguments)
        verdict = said[0].verdict if said else policy.default
        hint = "A rule without when= holds for every call of its tool."
        hint = hint if verdict != "ask" else "Someone would be asked. Which verdict needs no one?"
        expect(verdict == right, f"Of another call of {tool}, the policy says {verdict!r}.", hint)
