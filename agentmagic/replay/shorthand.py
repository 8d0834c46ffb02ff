"""The short form in which a recorded turn is written: without fields that can be computed from earlier documents.

The reader accepts the full form too, because cassettes of format 1 and edits by hand contain it.
"""

from collections.abc import Iterator
from typing import Any

from agentmagic.replay.exchange import SAME, Json, kind_of

SOURCES: Json = {"sources": SAME}
"""This document is not written: a turn without a list of tools has the list of the turn before."""

USUAL_REASON = "stop"
"""The reason why an answer ended, if its document has no reason."""


class Shorthand:
    """Converts the documents of one recorded turn, given one after the other, to the short form or back."""

    def __init__(self) -> None:
        self._requests = 0
        self._step = 0
        self._results = 0
        self._begun = False

    def shorten(self, document: Json) -> Json | None:
        """Return the short form of a recorded document, or None if the document need not be written."""
        short = document
        match document:
            case {"request": int() as number, "digest": str() as digest, **rest} if number == self._requests + 1:
                short = {"request": digest, **rest}
            case {"answer": int() as number, "parts": list(), **rest} if number == self._requests:
                if "usage" in rest and rest.setdefault("reason", "") == USUAL_REASON:
                    del rest["reason"]
                short = {"answer": _short_parts(document["parts"]), **rest}
            case {"result": name, "step": self._step, "call": self._results, **rest}:
                short = {"result": name, **rest}
            case {"end": "answer", "steps": list(), "seconds": seconds, **rest} if not rest.keys() - {"check"}:
                short = {"end": [seconds, *document["steps"], *rest.values()]}
            case _:
                pass
        self._count(document)
        return None if document == SOURCES else short

    def expand(self, document: Json) -> Iterator[Json]:
        """Yield the full form of a document. Before the first one, yield a list of tools if none was written."""
        if not self._begun and "sources" not in document:
            yield dict(SOURCES)
        match document:
            case {"request": str() as digest, **rest}:
                document = {"request": self._requests + 1, "digest": digest, **rest}
            case {"answer": str() | list(), **rest} if kind_of(document) == "answer":
                content = document["answer"]
                parts = [{"text": content}] if isinstance(content, str) else content
                reason = rest.pop("reason", USUAL_REASON if "usage" in rest else "")
                rest |= {"reason": reason} if reason else {}
                document = {"answer": self._requests, "parts": list(map(_whole_part, parts)), **rest}
            case {"result": name, **rest} if not rest.keys() & {"step", "call"}:
                document = {"result": name, "step": self._step, "call": self._results, **rest}
            case {"end": [seconds, *steps, str() as check]}:
                document = {"end": "answer", "steps": steps, "seconds": seconds, "check": check}
            case {"end": [seconds, *steps]}:
                document = {"end": "answer", "steps": steps, "seconds": seconds}
            case _:
                pass
        self._count(document)
        yield document

    def _count(self, document: Json) -> None:
        self._begun = True
        match document:
            case {"request": _}:
                self._requests += 1
            case {"answer": int()}:
                self._step, self._results = self._step + ("error" not in document), 0
            case {"result": _}:
                self._results += 1
            case _:
                pass


def _short_parts(parts: list[Json]) -> list[Json] | str:
    short = list(map(_short_part, parts))
    return short[0]["text"] if len(short) == 1 and short[0].keys() == {"text"} else short


def _short_part(part: Json) -> Json:
    match part:
        case {"type": "text", "text": text, **rest}:
            return {"text": text, **rest}
        case {"type": "tool_call", "name": name, **rest}:
            return {"call": name, **rest}
        case _:
            return part


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
