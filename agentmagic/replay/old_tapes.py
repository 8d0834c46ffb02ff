"""Turns the documents of cassettes of format 1 and 2 into documents of the present format, when a file is read.

In format 1, requests, answers and results have numbers, and an answer says in which pieces (`chunks`) and after which
milliseconds (`ms`) it arrived. In format 2, a document can also lack what follows from the documents before it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from agentmagic.replay import checks
from agentmagic.replay.exchange import AGENT, SAME_TOOLS, Json, kind_of, parts_of
from agentmagic.replay.recorded_answers import USUAL_REASON, content_of

_STREAMED = ("chunks", "written", "withdrawn")


def upgraded(head: Json, old_documents: Sequence[Json]) -> list[Json]:
    """Return a turn's documents in the present format. `head` is its first document. A bad document is kept as it is.

    A document that was edited by hand still counts as edited.
    """
    whole = list(_whole(old_documents))
    if whole and _is_cut_off(whole[-1]):
        whole.pop()
    new = list(_present(whole))
    if whole and isinstance(check := whole[-1].get("check"), str):
        # These are raised for a bad document, which is refused later.
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            old = "".join(map(_digest_of, (head, *whole)))
            new[-1] = {**new[-1], "check": checks.renewed(check, old, checks.digests_of((head, *new)))}
    return new


def _whole(documents: Sequence[Json]) -> Iterator[Json]:
    """Yield the documents with all that follows from the documents before: the full form of format 1."""
    request = step = result = 0
    for document in documents:
        whole = document
        match document:
            case {"request": str() as digest, **rest}:
                whole = {"request": request + 1, "digest": digest, **rest}
            case {"answer": str() | list(), **rest} if kind_of(document) == "answer":
                reason = rest.pop("reason", USUAL_REASON if "usage" in rest else "")
                rest |= {"reason": reason} if reason else {}
                whole = {"answer": request, "parts": list(map(_whole_part, parts_of(document))), **rest}
            case {"result": name, **rest} if not rest.keys() & {"step", "call"}:
                whole = {"result": name, "step": step, "call": result, **rest}
            case {"end": [seconds, *steps, str() as check]}:
                whole = {"end": "answer", "steps": steps, "seconds": seconds, "check": check}
            case {"end": [seconds, *steps]}:
                whole = {"end": "answer", "steps": steps, "seconds": seconds}
            case _:
                pass
        request += kind_of(whole) == "request"
        if kind_of(whole) == "answer":
            step, result = step + ("error" not in whole), 0
        result += kind_of(whole) == "result"
        yield whole


def _whole_part(part: Any) -> Any:
    match part:
        case {"type": _}:
            return part
        case {"text": _}:
            return {"type": "text", **part}
        case {"call": name, **rest}:
            return {"type": "tool_call", "name": name, **rest}
        case _:
            return part


def _is_cut_off(document: Json) -> bool:
    last = "chunks" if document.keys() & {"error", "stopped"} else "usage"
    return kind_of(document) == "answer" and last not in document


def _present(documents: Sequence[Json]) -> Iterator[Json]:
    """Yield documents of format 1 in the present format."""
    requests: dict[str, int] = {}
    for document in documents:
        inner, call = document, ""
        if kind_of(document) == AGENT and isinstance(document.get("document"), dict):
            inner, call = document["document"], f"{document.get('step')} {document.get('call')}"
        match inner:
            case {"request": int() as number, "digest": digest, **rest}:
                requests[call] = number
                new = {"request": digest, **rest}
            case {"answer": int() as number, "parts": list()}:
                new = _answer(inner, {} if number == requests.get(call) else {"to": number})
            case _:
                new = inner
        if new != SAME_TOOLS:
            yield new if inner is document else {**document, "document": new}


def _answer(old: Json, place: Json) -> Json:
    """Return the document of an answer. `place` has the number of its request, if this is not the last one."""
    rest = {name: value for name, value in old.items() if name not in ("answer", "parts", "ms", "chunks")}
    usage = {"usage": rest.pop("usage")} if "usage" in rest else {}
    if usage and rest.setdefault("reason", "") == USUAL_REASON:
        del rest["reason"]
    chunks = str(old.get("chunks", ""))
    begun, ended = (set(map(int, re.findall(rf"(?<!\S)[{mark}](\d{{1,6}})(?!\d)", chunks))) for mark in "+-")
    unfinished = {"open": sorted(begun - ended)} if begun - ended else {}
    stopped = {"stopped": rest.pop("stopped", False)} if "stopped" in rest or not usage else {}
    return {"answer": content_of(old["parts"]), **place, **unfinished, **rest, **stopped, **usage}


# -- the check of edits ------------------------------------------------------------------------------


def _digest_of(document: Json) -> str:
    """Return the digest that a document of format 1 has in the `check` of its turn."""
    match document:
        case {"agent": _, "document": dict()} if kind_of(document) == AGENT:
            return _digest_of(document["document"])
        case {"answer": _, "parts": list()}:
            fields = {name: value for name, value in document.items() if name not in (*checks.UNCHECKED, "ms")}
            return checks.digest_of_answer(fields, "parts", document["parts"], _STREAMED)
        case _:
            return checks.digest_of(document)
