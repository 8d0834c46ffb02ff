"""The takes inside a take: those of the agents that calls of the turn have asked, as documents that name the call."""

from collections.abc import Callable, Iterator, Sequence

from agentmagic.replay import checks
from agentmagic.replay.cassette import Take
from agentmagic.replay.exchange import AGENT, Json, kind_of


def take_inside(take: Take, call: Json) -> Take | None:
    """Return the take of the agent that a call has asked, None without one; `call` is a document that says its place.

    Raises CassetteError for documents that are not those of a turn.
    """
    of_call = [one["document"] for one in take.documents if kind_of(one) == AGENT and _place(one) == _place(call)]
    if not of_call:
        return None
    head, *found = of_call
    checks.check_head(head, take.where)
    inner = Take(head, where=take.where)
    checks.check(found, inner.where)
    inner.replace(found)
    return inner


def inner_takes(take: Take) -> list[Take]:
    """Return the takes of all agents that calls of the turn have asked. Raises CassetteError."""
    firsts = {str(_place(one)): one for one in reversed(take.documents) if kind_of(one) == AGENT}
    takes = [take_inside(take, one) for one in reversed(firsts.values())]
    return [one for one in takes if one is not None]


def with_inner(take: Take, change: Callable[[Take], Sequence[Json]]) -> list[Json]:
    """Return the documents of a take, with those that `change` makes of each inner take in the place of its own.

    Raises CassetteError.
    """
    left: dict[str, Iterator[Json]] = {}
    found: list[Json] = []
    for one in take.documents:
        place = str(_place(one)) if kind_of(one) == AGENT else ""
        if place and place not in left:  # the head of an inner take, which stays
            inner = take_inside(take, one)
            left[place] = iter(() if inner is None else change(inner))
            found.append(one)
        else:
            found.append({**one, "document": next(left[place])} if place else one)
    return found


def _place(document: Json) -> tuple[object, object]:
    """Return where the call of a document stands, as the document has it."""
    return document["step"], document["call"]
