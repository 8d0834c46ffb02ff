"""Validates the documents of a recorded turn (a take): their fields, their order, and whether any was edited or lost.

The last document of a take has a `check`: short digests of all documents before it. They show which document was edited
by hand. Each request has a longer digest of all that the model gets: prompts, tools, answers and results.
"""

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, cast, get_args

from agentmagic.errors import CassetteError
from agentmagic.messages import ResultStatus
from agentmagic.replay.comparison import LONGEST, Difference, record_line
from agentmagic.replay.exchange import AGENT, SAME, Json, kind_of, parts_of, tool_def, with_numbers
from agentmagic.secrets import redact
from agentmagic.text import clip

MEND = "Undo the edit, or record it again."
_QUOTES = " A text that looks like a number, or is true, false or null, needs quotes."
DIGITS = 2
"""Characters of one digest in a `check`, 6 bits each."""
MOST_COUNTS = 8
"""The largest number of counts that `recorded_answers.usage_list` writes."""

ANSWERS = ("yes", "no", "always", "nobody")
"""The possible answers to a request for approval; "nobody" if no user answered."""
_RANGES = re.compile(r"\d{1,9}(?:-\d{1,9})?(?: \d{1,9}(?:-\d{1,9})?)*", re.ASCII)
UNCHECKED = ("seconds", "steps", "check")
_STREAMED = ("written", "withdrawn")
"""The fields of an answer that say how its texts arrived."""

Test = Callable[[Any], bool]


# -- forms -----------------------------------------------------------------------------------------


def _is(*kinds: type) -> Test:
    return lambda value: type(value) in kinds


def _or_null(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _list(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, cast("list[Any]", value)))


def _dict(test: Test) -> Test:
    return lambda value: isinstance(value, dict) and all(map(test, cast("Json", value).values()))


def _mapping(**tests: Test) -> Test:
    """Return a test that a value is a mapping whose fields pass `tests`. A key such as `text_` is an optional field."""
    return lambda value: isinstance(value, dict) and _bad_field(cast("Json", value), tests) is None


def _any(_value: Any) -> bool:
    return True


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < float("inf")


def _place(value: Any) -> bool:
    return _count(value) or (_list(_count)(value) and len(value) > 1)


def _rows(value: Any) -> bool:
    """Return whether each line of a text is JSON that says how a row of a map ended."""
    try:
        return all(isinstance(json.loads(line)["key"], str) for line in value.split("\n"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return False


def _places(value: Any) -> bool:
    return _is(str, int)(value) and _RANGES.fullmatch(str(value)) is not None


def _counts(value: Any) -> bool:
    return _list(_or_null(_seconds))(value) and len(value) <= MOST_COUNTS


def _tool(value: Any) -> bool:
    try:
        tool: Any = tool_def(value)
    except (TypeError, KeyError, AttributeError, ValueError):
        return False
    return isinstance(tool.name, str) and isinstance(tool.parameters, dict)


def _part(value: Any) -> bool:
    """Return whether a value looks like a part of a message; `serialization.from_json` checks the other fields."""
    match value:
        case {"type": "tool_call"}:
            return _CALL(value)
        case {"type": str()}:
            return True
        case _:
            return False


def _aside(value: Any) -> bool:
    match value:
        case ["progress", done, total, words]:
            return _NUMBER(done) and _or_null(_NUMBER)(total) and isinstance(words, str)
        case ["tell" | "ask" | "gone", *words]:
            return len(words) == 1 and isinstance(words[0], str)
        case ["complete", messages, instructions, limit]:
            return _list(_DICT)(messages) and isinstance(instructions, str) and _or_null(_is(int))(limit)
        case ["inner", *rest]:
            return len(rest) == 1 and _count(rest[0])
        case [str(), *_]:
            return True
        case _:
            return False


_TEXT, _BOOL, _DICT, _LIST = _is(str), _is(bool), _is(dict), _is(list)
_NUMBER = _is(int, float, bool)
_CALL = _mapping(type=_TEXT, name=_TEXT, id=_TEXT, arguments=_DICT, provider_data_=_any)
_BOUNDS: dict[str, Test] = {"name": _TEXT, "domains_": _list(_TEXT), "max_uses_": _count}
_HOSTED = _mapping(**_BOUNDS)
_SOURCE = _mapping(
    local_=_BOOL,
    tools_=_list(_tool),
    problems_=_list(_TEXT),
    notices_=_list(_TEXT),
    parallel_=_dict(_BOOL),
    ask_=_dict(_BOOL),
    code_=_dict(_BOOL),
    hosted_=_dict(_HOSTED),
)
_ERROR = _mapping(
    kind=_TEXT,
    text=_TEXT,
    status_=_or_null(_is(int)),
    retry_after_=_or_null(_NUMBER),
    retryable_=_BOOL,
    mended_=_TEXT,
    usage_=_counts,
)
_RESULT: dict[str, Test] = {
    "step": _count,
    "call": _place,
    "id_": _TEXT,
    "arguments_": _DICT,
    "ran_": _BOOL,
    "text_": _TEXT,
    "content_": _list(_part),
    "status_": lambda value: value in get_args(ResultStatus),
    "structured_": _any,
    "done_": _or_null(_TEXT),
    "server_": _TEXT,
    "asides_": _list(_aside),
    "traceback_": _TEXT,
    "rich_": _list(_TEXT),
    "seconds_": _seconds,
}
_HEAD: dict[str, Test] = {
    "turn": _TEXT,
    "parts_": _list(_part),
    "values_": _list(_mapping(written=_TEXT, kind=_TEXT, text=_TEXT)),
    "session_": _TEXT,
    "model_": _TEXT,
    "asked_": _TEXT,
    "address_": _TEXT,
    "advice_": _TEXT,
    "left out_": _list(_TEXT),
    "map_": _BOOL,
    "served_": _BOOL,
    "recording_": _mapping(id_=_TEXT, after_=_TEXT, instead_=_list(_TEXT), whole_=_BOOL),
}
_FORMS: dict[str, dict[str, Test]] = {
    "sources": {
        "sources": lambda value: value == SAME or _list(_SOURCE)(value),
        "chosen_": _list(_TEXT),
        "hosted_": _list(_mapping(**_BOUNDS, missing_=_BOOL)),
    },
    "request": {
        "request": _TEXT,
        "instructions_": _or_null(_TEXT),
        "tools_": _or_null(_LIST),
        "tool_choice_": _or_null(_TEXT),
        "output_": _or_null(_DICT),
        "settings_": _or_null(_DICT),
        "decision_": _or_null(_TEXT),
        "hosted_": _or_null(_list(_HOSTED)),
        "project_": _or_null(_list(_mapping(kind=_TEXT, file=_TEXT, digest=_TEXT, text=_TEXT))),
        "keep_": _count,
        "messages_": _list(_mapping(role=_TEXT, parts=_LIST, interrupted_=_BOOL)),
    },
    "answer": {
        "answer": lambda value: _TEXT(value) or _list(_part)(value),
        "to_": _count,
        "written_": _dict(_TEXT),
        "withdrawn_": _list(_count),
        "open_": _list(_count),
        "reason_": _TEXT,
        "cut_": _BOOL,
        "once_": _BOOL,
        "last_": _BOOL,
        "refused_": _BOOL,
        "unknown_": _BOOL,
        "error_": _ERROR,
        "usage_": _counts,
        "stopped_": _BOOL,
    },
    "wait": {"wait": _seconds},
    "approval": {
        "approval": _TEXT,
        "step": _count,
        "call": _place,
        "answer": lambda value: value in ANSWERS,
        "arguments_": _DICT,
        "reason_": _TEXT,
        "option_": _TEXT,
    },
    "asked": {
        "asked": _TEXT,
        "step": _count,
        "call": _place,
        "arguments_": _DICT,
        "options_": _list(lambda option: _list(_TEXT)(option) and len(option) == 3),  # noqa: PLR2004  (id, name, kind)
    },
    "question": {"question": _TEXT, "answer": _or_null(_TEXT)},
    "inner": {"inner": _TEXT, **_RESULT, "begun_": _count, "unfinished_": _BOOL},
    "result": {"result": _TEXT, **_RESULT},
    AGENT: {AGENT: _TEXT, "step": _count, "call": _place, "document": _DICT},
    "plan": {"plan": _list(lambda entry: _list(_TEXT)(entry) and len(entry) == 2)},  # noqa: PLR2004  (words, status)
    "late": {"late": _TEXT},
    "stop": {"stop": _BOOL},
    "rows": {"rows": _rows},
    "map": {
        "map": _count,
        "spent": _counts,
        "kept_": _count,
        "total_": _count,
        "rate_": _seconds,
        "doubtful_": _list(_TEXT),
        "places_": _places,
        "notices_": _list(_TEXT),
        "file_": _TEXT,
        "answers_": _TEXT,
        "keys": _TEXT,
    },
    "end": {"end": _TEXT, "error_": _TEXT, "steps_": _list(_seconds), "seconds_": _seconds, "check_": _TEXT},
}
"""The fields of each kind of document, with a test for each field. A field whose name ends in `_` is optional."""
KINDS = tuple(_FORMS)


def _bad_field(data: Mapping[str, Any], tests: Mapping[str, Test]) -> str | None:
    """Return the name of a field that is missing, invalid or unknown; None if all fields are valid."""
    tests_by_name = {name.removesuffix("_"): test for name, test in tests.items()}
    missing = (name for name in tests if not name.endswith("_") and name not in data)
    wrong = (name for name, value in data.items() if name not in tests_by_name or not tests_by_name[name](value))
    return next(missing, next(wrong, None))


def check_head(head: Json, where: str) -> None:
    """Raise CassetteError if the first document of a recorded turn is invalid. The message begins with `where`."""
    if (name := _bad_field(head, _HEAD)) is not None:
        raise CassetteError(f"{where}: {name!r:.60} is missing or has another form. {MEND}")


def check(documents: Sequence[Json], where: str) -> None:
    """Raise CassetteError if a document of a recorded turn is invalid or out of order; `where` begins the message."""
    for document in documents:
        kind = kind_of(document)
        if kind not in _FORMS:
            raise CassetteError(f"{where}: {kind!r:.60} is no document of a take. {MEND}")
        if (name := _bad_field(document, _FORMS[kind])) is not None:
            quotes = _QUOTES if (kind, name) == ("answer", "answer") else ""
            raise CassetteError(f"{where}, {kind}: {name!r:.60} is missing or has another form.{quotes} {MEND}")
    if (problem := next(_order_problems(documents), "")) != "":
        raise CassetteError(f"{where}: {problem}. A document was lost, doubled or moved. {MEND}")


def _order_problems(documents: Sequence[Json]) -> Iterator[str]:
    """Yield a message for each document of a recorded turn that is missing, doubled or out of order."""
    kinds = [kind_of(document) for document in documents]
    request_count, answer_numbers = 0, set[int]()
    for (number, _), kind in zip(with_numbers(documents), kinds, strict=True):
        request_count += kind == "request"
        if kind == "answer":
            if number in answer_numbers or not 0 < number <= request_count:
                yield f"answer {number} has no request before it, or is there twice"
            answer_numbers.add(number)
    places = [(item["step"], str(item["call"])) for item in documents if kind_of(item) in ("result", "inner")]
    if len(set(places)) < len(places):
        yield "two results have the same place"
    if "end" in kinds[:-1]:
        yield "a document stands behind the end"
    if "map" in kinds:  # a map has row outcomes in place of answers
        return
    # Without an `end` document, the last request may lack its answer, because the process may have been killed.
    missing = set(range(1, request_count + (kinds[-1:] == ["end"]))) - answer_numbers
    yield from (f"request {number} has no answer" for number in sorted(missing))


# -- edits -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """A document that was edited by hand. A user may make only `minor` edits: changes to the text of an answer."""

    step: int
    difference: Difference
    minor: bool


def digest_of(document: Json) -> str:
    """Return a short digest of a document. For an answer, a digest of its texts follows, because a user may edit them.

    For rows of a map, return one digest per row. Return "" for requests, for lists of tools
    (covered by the digests in the requests), and for a normal end.
    """
    if kind_of(document) == AGENT:
        return digest_of(document["document"])
    fields = {name: value for name, value in document.items() if name not in UNCHECKED}
    if kind_of(document) in ("request", "sources") or fields == {"end": "answer"}:
        return ""
    if kind_of(document) == "rows":
        return "".join(map(digest, document["rows"].split("\n")))
    if kind_of(document) != "answer":
        return digest(fields)
    return digest_of_answer(fields, "answer", parts_of(document), _STREAMED)


def digests_of(documents: Iterable[Json]) -> str:
    """Return the digests of documents, one after the other, as the `check` of a turn has them."""
    return "".join(map(digest_of, documents))


def renewed(check: str, old: str, new: str) -> str:
    """Return the `check` of a turn whose documents had the digests `old` and now have the digests `new`.

    The digest of a document that was edited by hand before is kept, so that it still differs.
    """
    if len({len(check), len(old), len(new)}) > 1:  # documents were lost or added: `edits` says so
        return check
    digests = zip(*map(_pieces, (check, old, new)), strict=True)
    return "".join(now if recorded == before else recorded for recorded, before, now in digests)


def digest_of_answer(fields: Json, name: str, parts: Sequence[Json], streamed: Collection[str]) -> str:
    """Return a digest of an answer's `fields`, then one of its texts: those of the `parts`, and the `streamed` fields.

    `name` is the field that has the parts.
    """
    whole = {key: value for key, value in fields.items() if key not in streamed}
    whole[name] = [{key: value for key, value in part.items() if key != "text"} for part in parts]
    texts = {key: fields[key] for key in streamed if key in fields}
    return digest(whole) + digest([texts, *(part.get("text") for part in parts)])


def digest(data: Any) -> str:
    """Return the digest of JSON data, as a `check` has it."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=int)
    return urlsafe_b64encode(blake2b(text.encode(), digest_size=3).digest()).decode()[:DIGITS]


def edits(head: Json, documents: Sequence[Json], where: str) -> list[Edit]:
    """Return the edits by hand in a recorded turn. If its last document has no `check` (digests), return [].

    Raises CassetteError, whose message begins with `where`, if documents were lost, doubled or moved.
    """
    old_digests: str = documents[-1].get("check", "") if documents else ""
    if not old_digests:
        return []
    pairs = [(number, one, digest_of(one)) for number, one in with_numbers((head, *documents))]
    now = "".join(new_digest for *_, new_digest in pairs)
    if len(now) != len(old_digests):
        raise CassetteError(f"{where}: the recording lacks a document, or has one more than was written. {MEND}")
    if now != old_digests and sorted(_pieces(now)) == sorted(_pieces(old_digests)):
        raise CassetteError(f"{where}: the recording has its documents in another order than was written. {MEND}")
    result: list[Edit] = []
    for number, document, new_digest in pairs:
        before, old_digests = old_digests[: len(new_digest)], old_digests[len(new_digest) :]
        if before != new_digest:
            result.append(_edit(document, before, number))
    return result


def _pieces(digests: str) -> list[str]:
    return [digests[start : start + DIGITS] for start in range(0, len(digests), DIGITS)]


def _edit(document: Json, old_digest: str, number: int) -> Edit:
    """Return how a document was edited. Approvals show the recorded value, others only the recorded digest.

    `number` is that of the document's request.
    """
    if kind_of(document) == AGENT:
        return replace(_edit(document["document"], old_digest, number), step=document["step"])
    kind, name = kind_of(document), document[kind_of(document)]
    before, field = f"(digest {old_digest})", kind
    after: Any = {field: value for field, value in document.items() if field not in (*UNCHECKED, "step", "call")}
    match kind:
        case "answer":
            after = " ".join(str(part.get("text", part.get("arguments", ""))) for part in parts_of(document))
        case "approval":
            field, after = f"approvals.{name}", document["answer"]
            before = next(
                (answer for answer in ANSWERS if digest_of({**document, "answer": answer}) == old_digest), before
            )
        case "result" | "inner":
            field, after = f"results.{name}", document.get("text", after)
        case "rows":
            pairs = zip(name.split("\n"), _pieces(old_digest), strict=True)
            after, before = next((line, before) for line, before in pairs if digest(line) != before)
            field, before = f"rows.{json.loads(after).get('row', '')}", f"(digest {before})"
        case _:
            pass
    step = document.get("step", number if kind == "answer" else 1)
    after = clip(redact(after if isinstance(after, str) else record_line(after)), LONGEST)
    is_minor = kind == "answer" and digest_of(document)[:DIGITS] == old_digest[:DIGITS]
    return Edit(step, Difference("edited", redact(field), before, after), is_minor)
