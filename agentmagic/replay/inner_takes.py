"""The recorded turns of agents that were called as tools. They are stored inside the recorded turn of the caller."""

from collections.abc import Callable, Iterator, Sequence

from agentmagic.replay import checks
from agentmagic.replay.cassette import Take
from agentmagic.replay.exchange import AGENT, Json, kind_of
from agentmagic.replay.recorder import Place, place_of


def take_inside(take: Take, call: Json) -> Take | None:
    """Return the recorded turn of an agent called as a tool, or None. `call` is any document of that tool call.

    Raises CassetteError if the documents of the agent's turn are invalid.
    """
    of_call = [
        document["document"]
        for document in take.documents
        if kind_of(document) == AGENT and place_of(document) == place_of(call)
    ]
    if not of_call:
        return None
    head, *documents = of_call
    checks.check_head(head, take.where)
    inner = Take(head, where=take.where)
    checks.check(documents, inner.where)
    inner.replace(documents)
    return inner


def inner_takes(take: Take) -> list[Take]:
    """Return the recorded turns of all agents called as tools in a turn. Raises CassetteError if one is invalid."""
    firsts = {place_of(one): one for one in reversed(take.documents) if kind_of(one) == AGENT}
    takes = [take_inside(take, one) for one in reversed(firsts.values())]
    return [one for one in takes if one is not None]


def with_inner(take: Take, change: Callable[[Take], Sequence[Json]]) -> list[Json]:
    """Return the documents of a recorded turn, with `change` applied to the turns of agents called in it.

    Raises CassetteError if the turn of an agent is invalid.
    """
    rest: dict[Place, Iterator[Json]] = {}
    documents: list[Json] = []
    for document in take.documents:
        place = place_of(document) if kind_of(document) == AGENT else ()
        if place and place not in rest:  # do not change the first document of an agent's turn
            inner = take_inside(take, document)
            rest[place] = iter(() if inner is None else change(inner))
            documents.append(document)
        else:
            documents.append({**document, "document": next(rest[place])} if place else document)
    return documents
