import inspect
import re

from agentmagic import errors
from agentmagic.errors import AgentMagicError

CLASSES = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, AgentMagicError)]


def drawn():
    """The tree of the docstring: each class with the one above it and the built-in kind it also is."""
    above = {}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)(\((?P<also>\w+)\))?(  |$)", line):
            depth = len(found["branch"]) // 4
            above[depth] = found["name"]
            yield found["name"], above.get(depth - 1), found["also"]


def test_the_tree_is_drawn_as_it_is():
    assert sorted(name for name, _, _ in drawn()) == sorted(kind.__name__ for kind in CLASSES)
    for name, parent, also in drawn():
        bases = [base.__name__ for base in getattr(errors, name).__bases__]
        assert bases == [base for base in (parent or "Exception", also) if base]
