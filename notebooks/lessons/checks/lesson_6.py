"""Checks of lesson 6: rules for mail, and a function that looks at each address."""

from agentmagic import ToolDef
from agentmagic.testing import check, exercise, expect

from . import SAME, prompt_of, raised, results_of

TASK = "Tell the dean that the room is fine."
STRANGERS = (
    "alex@mail.example",
    "x@eviluni.example",
    "x@uni-example",
    "collector@uni.example.evil.example",
    "uni.example@evil.example",
    "dean@evil.example",
    "anna@home.example",
    "anna@uni.example.org",
)
COLLEAGUES = ("dean@uni.example", "anna@uni.example", "b.de.vries@uni.example", "zoe@uni.example")


def sent_to(session):
    """Return the addresses to which the last turn of a session sent mail."""
    calls = [event.call for event in session.last.events if event.type == "tool_started" and event.call.name == "send_mail"]
    return [address.strip() for call in calls for address in call.arguments["to"].split(",")]


def verdict(policy, to):
    """Return what a policy says of a mail."""
    said = policy.strictest(ToolDef("send_mail", ""), {"to": to, "text": "Hello."})
    return said[0].verdict if said else policy.default


def check_turn(session, hint):
    """Check that the model tried both mails, and that one was sent."""
    expect(prompt_of(session) == TASK, "The question is another one.", SAME)
    tried = [result.name for result in results_of(session)]
    words = "The model asks for two mails, to the dean and to the collector. Leave its script as it is."
    expect(tried == ["send_mail", "send_mail"], f"The model made the calls {tried}.", words)
    expect("collector@evil.example" not in sent_to(session), "The collector got the grades.", hint)
    hint = "The dean is of the university. Which rule allows that mail?"
    check(session).hint(hint).called("send_mail", to="dean@uni.example")


@exercise(
    "1",
    'Rule("allow", "send_mail", when={"to": "*..."}) allows some addresses. Policy(rules, default="deny") denies the rest.',
    'Policy([Rule("allow", "send_mail", when={"to": "*@uni.example"})], default="deny")',
)
def check_1(session, policy):
    """Check the policy with addresses of colleagues and of strangers."""
    check_turn(session, "A rule without when= holds for every address.")
    for address in STRANGERS:
        said = verdict(policy, address)
        hint = "To forbid one stranger leaves all others. Allow what is known, and deny the rest."
        hint = "What if no rule fits? The default decides, and no one should have to be asked." if said == "ask" else hint
        if "uni.example" in address:
            hint = "What stands before uni.example, and what behind it? A name may be a part of another one."
        expect(said == "deny", f"Of a mail to some other stranger, the policy says {said!r}.", hint)
    for address in COLLEAGUES:
        hint = "The dean is not the only one at the university. Which part of the addresses is the same?"
        said = verdict(policy, address)
        expect(said == "allow", f"Of a mail to some colleague, the policy says {said!r}.", hint)


@exercise(
    "2",
    'arguments["to"].split(",") has the addresses, some with a blank in front: strip() them. all(...) asks about each.',
    'return all(address.strip().endswith("@uni.example") for address in arguments["to"].split(","))',
)
def check_2(session, within, policy):
    """Check the function with one address, with several, in every order."""
    hint = "The text names two addresses. The function has to look at each of them."
    check_turn(session, hint)
    for to in COLLEAGUES:
        _check_within(within, to, True, "a colleague", "All addresses that end with @uni.example are allowed.")
    for to in STRANGERS:
        hint = "A stranger's address may hold the name of the university, or end with the same letters. What stands before it?"
        _check_within(within, to, False, "a stranger", hint)
    for to in ("dean@uni.example, anna@uni.example", "dean@uni.example,anna@uni.example , b@uni.example"):
        hint = "There may be blanks around an address, and more than two addresses."
        _check_within(within, to, True, "several colleagues", hint)
    for to in (
        "dean@uni.example, x@eviluni.example",
        "alex@mail.example,dean@uni.example",
        "dean@uni.example, alex@mail.example, anna@uni.example",
        "dean@uni.example, anna@uni.example, alex@mail.example",
    ):
        hint = "One stranger among the addresses is enough to say no, in every place of the list."
        _check_within(within, to, False, "colleagues and a stranger", hint)
    hint = "The function decides only if a rule of the policy names it: when=within."
    expect(verdict(policy, "anna@uni.example") == "allow", "The policy does not allow a mail to a colleague.", hint)
    expect(verdict(policy, "x@eviluni.example") == "deny", "The policy does not deny a mail to a stranger.", hint)


def _check_within(within, to, right, who, hint):
    value, error = raised(within, {"to": to, "text": "Hello."})
    expect(error is None, f"within raises {type(error).__name__} for a mail to {who}.", hint)
    hint = "The function returns an answer of yes or no: True or False." if not isinstance(value, bool) else hint
    expect(bool(value) is right, f"Of a mail to {who}, within returns {value!r:.80}.", hint)
