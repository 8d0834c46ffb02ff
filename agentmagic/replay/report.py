"""Text reports on cassette files: their turns, differences to another cassette, edits, and values that change."""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from operator import itemgetter
from typing import Any, cast

from agentmagic.errors import CassetteError
from agentmagic.replay.cassette import Cassette, Take
from agentmagic.replay.checks import MEND
from agentmagic.replay.comparison import compare
from agentmagic.replay.exchange import AGENT, Json, kind_of, parts_of, with_numbers
from agentmagic.replay.inner_takes import with_inner
from agentmagic.replay.map_tape import rows_of_take
from agentmagic.replay.player import all_records, records
from agentmagic.replay.recorder import DIGEST
from agentmagic.replay.recording import write_lock
from agentmagic.secrets import redact
from agentmagic.text import plural, sanitize, single_line

LONGEST = 200
"""Maximum number of characters in a line."""
ATTRIBUTES = "*.cassette.yaml text eol=lf -merge"
GIT_ADVICE = f"In git, keep line ends and never mix two recordings: echo '{ATTRIBUTES}' >> .gitattributes"


def describe(cassette: Cassette) -> Iterator[str]:
    """Yield lines for the turns of a cassette: prompts, numbered answers, calls with their results, approvals.

    Raises CassetteError if a document cannot be read.
    """
    for number, take in enumerate(cassette.takes, 1):
        session = f" ({take.session})" if take.session else ""
        yield _cut(f"{number}{session}, {take.head.get('model', '')}: {take.prompt}")
        for request, document in with_numbers(take.documents):
            yield from (f"    {_cut(line)}" for line in _lines(document, request))


def _lines(document: Json, number: int) -> Iterator[str]:  # noqa: C901  (one arm for each kind of document)
    match document:
        case {"answer": _} if kind_of(document) == "answer":
            for part in parts_of(document):
                content = (
                    f"{part['name']}({part['arguments']})" if part["type"] == "tool_call" else part.get("text", "")
                )
                yield f"{number}. {part['type'].replace('_', ' ')}: {content}"
        case {"agent": str() as name, "document": dict()} if kind_of(document) == AGENT:
            inner = cast("Json", document["document"])
            lines = [f"asked: {inner['turn']}"] if kind_of(inner) == "turn" else _lines(inner, number)
            yield from (f"      {name} {line}" for line in lines)
        case {"inner": name}:
            yield f"      {name}({document.get('arguments')}) returned: {_result_text(document)}"
        case {"result": name}:
            yield f"   {name} returned: {_result_text(document)}"
        case {"asked": name, "arguments": arguments}:
            yield f"   asked for {name}({arguments})"
        case {"approval": name, "answer": answer}:
            yield f"   approval of {name}: {answer}"
        case {"question": text, "answer": answer}:
            yield f"   {text} {answer}"
        case {"rows": str() as text}:
            yield from (f"row {_row(json.loads(line))}" for line in text.split("\n"))
        case {"map": int() as count}:
            where = f" in {document['file']}" if "file" in document else ""
            yield f"map of {plural(count, 'row')}{where}"
        case {"end": reason} if reason not in ("answer", "done"):
            yield f"ended: {reason} {document.get('error', '')}"
        case _:
            pass


def _row(row: Json) -> str:
    """Return one line of text for the recorded outcome of a row of a map."""
    answer = row.get("answer") or row.get("error") or row.get("value")
    return f"{row.get('row')}: {row.get('status')} {answer}"


def _result_text(document: Json) -> Any:
    return document.get("text", document.get("content", ""))


def differences(old: Cassette, new: Cassette) -> Iterator[str]:
    """Yield lines on how the cassette `new` differs from `old`: in turns, in requests (and why), and in answers.

    Raises CassetteError if a document cannot be read.
    """
    prompts = [[take.prompt for take in cassette.takes] for cassette in (old, new)]
    for kind, i, k, j, m in SequenceMatcher(None, *prompts, autojunk=False).get_opcodes():
        pairs = list(zip_longest(old.takes[i:k], new.takes[j:m]))
        for before, after in pairs:
            if before is None or after is None:
                take = before or after
                yield _cut(f"{'-' if after is None else '+'} {take.prompt if take else ''}")
            else:
                lines = list(_between(old, before, new, after))
                if lines or kind != "equal":
                    yield _cut(f"  {before.prompt}")
                    yield from (f"    {_cut(line)}" for line in lines)


def _between(old: Cassette, before: Take, new: Cassette, after: Take) -> Iterator[str]:
    pairs = zip_longest(*(map(itemgetter(1), all_records(*one)) for one in ((old, before), (new, after))))
    for number, (one, other) in enumerate(pairs, 1):
        if one is None or other is None:
            yield f"request {number}: only in the {'second' if one is None else 'first'}"
            continue
        for change in compare(one, other):
            yield f"request {number}: {change.field} ({change.cause}): {change.before!r} became {change.after!r}"
    answers = (
        [list(_lines(one, number)) for number, one in with_numbers(take.documents) if kind_of(one) == "answer"]
        for take in (before, after)
    )
    for one, other in zip(*answers, strict=False):
        if one != other:
            yield f"answer: {' '.join(one)!r} became {' '.join(other)!r}"
    if before.is_map and after.is_map:
        yield from _between_rows(before, after)


def _between_rows(before: Take, after: Take) -> Iterator[str]:
    """Yield lines on how the rows of two recordings of a map differ."""
    one, other = ({key: _row(json.loads(line)) for key, line in rows_of_take(take).items()} for take in (before, after))
    for key in one | other:
        if key not in one or key not in other:
            yield f"{'-' if key in one else '+'} row {one.get(key, other.get(key))}"
        elif one[key] != other[key]:
            yield f"row {one[key]!r} became {other[key]!r}"
    digests = [next((doc.get("answers") for doc in take.documents if "map" in doc), None) for take in (before, after)]
    if digests[0] != digests[1]:
        yield f"answers in the file: {digests[0]} became {digests[1]}"


def problems(cassette: Cassette) -> Iterator[str]:
    """Yield one sentence for each problem of a cassette: a document that was edited or cut off, or holds secrets."""
    edited = False
    for number, take in enumerate(cassette.takes, 1):
        where = f"Turn {number}, {take.prompt!r:.60}"
        try:
            for edit in take.edits:
                edited = True  # later requests contain the edit, so their digests differ too: do not report them
                field, after = edit.difference.field, edit.difference.after
                yield f"{where}, step {edit.step}: {field} was edited to {after}. {MEND}"
            for request, (document, record) in enumerate(() if edited else all_records(cassette, take), 1):
                if document["request"] != record.digest[:DIGEST]:
                    yield f"{where}: request {request} is not what was sent. {MEND}"
            if not take.ended:
                yield f"{where}: the recording breaks off. Record it again."
            missing = (one["file"] for one in take.documents if kind_of(one) == "map" and "file" in one)
            if name := next((one for one in missing if not (cassette.path.parent / one).is_file()), ""):
                yield f"{where}: its rows are in {name}, which is missing. Restore it, or record the cell again."
            if any(redact(text) != text for text in take.text()):
                name = cassette.path
                yield f"{where}: it holds a secret. Run: python -m agentmagic cassette scrub {name}"
        except (CassetteError, KeyError, TypeError) as error:
            yield f"{where}: {error}"


def scrub(cassette: Cassette) -> int:
    """Blank in a cassette every secret that is known now, and write the file. Return the number of changed documents.

    Raises CassetteError if a document cannot be read, or if the file cannot be written.
    """
    count = 0
    with write_lock(cassette):
        cassette.refresh()
        for take in cassette.takes:
            before = [take.head, *take.documents]
            head, *clean = [cast("Json", _clean(document)) for document in before]
            count += sum(one != other for one, other in zip(before, [head, *clean], strict=True))
            take.replace(clean, head)
        for take in cassette.takes if count else ():
            take.replace(_with_digests(cassette, take))
        if count:
            cassette.save()
    return count


def _with_digests(cassette: Cassette, take: Take) -> list[Json]:
    """Return the documents of a recorded turn, with the digest of each request computed again."""
    digests = iter([record.digest[:DIGEST] for _, record in records(cassette, take)])
    documents = with_inner(take, lambda inner: _with_digests(cassette, inner))
    return [one | ({"request": next(digests)} if kind_of(one) == "request" else {}) for one in documents]


def _clean(value: Any) -> Any:
    match value:
        case str():
            return redact(value)
        case dict():
            pairs = cast("Json", value).items()
            return {redact(key): inner if key == "$bytes" else _clean(inner) for key, inner in pairs}
        case list():
            return [_clean(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


def _cut(text: str) -> str:
    return f"{text[: len(text) - len(text.lstrip())]}{single_line(sanitize(text), LONGEST)}"


# -- what is not the same in two runs ----------------------------------------------------------------

_NOT_AS_RECORDED = re.compile(r"is not as recorded \(cause: .*?\)\. Recorded: (.*); now: (.*?)\.(?: The recorded|$)")
_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?|\d{1,2}:\d\d:\d\d(?:\.\d+)?|\b1[6-9]\d{8}(?:\.\d+)?\b"
_TEMPORARY = r"(?:/tmp|/var/folders|/private/tmp|[A-Z]:\\[^\s]*\\Temp)[\\/][^\s'\",)]*"
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_KINDS = (("a date or time", _DATE), ("a temporary path", _TEMPORARY), ("a random number", _NUMBER))
_SOURCES = {
    "a date or time": r"\bnow\(|\btoday\(|\btime\(|\bstrftime\(|perf_counter|monotonic",
    "a temporary path": r"tempfile|mkdtemp|mkstemp|TemporaryDirectory|gettempdir",
    "a random number": r"\brandom|\brng\b|\bsample\(|shuffle|uuid|secrets\.",
    "the order of a set": r"\bset\(|\{[^:{}]+\}|frozenset",
    "rows without an order": r"(?i)\bselect\b(?!.*\border by\b)|glob\(|listdir\(|iterdir\(|as_completed",
}
"""For each kind of changing value, a pattern of code that produces it."""


def why_different(before: str, after: str) -> str:
    """Return a probable reason why a value differs in two runs of the same code, such as "a date or time"."""
    if before.splitlines() != after.splitlines() and sorted(before.splitlines()) == sorted(after.splitlines()):
        return "rows without an order"
    words = [sorted(re.findall(r"[^\s,\[\](){}]+", text)) for text in (before, after)]
    if words[0] == words[1]:
        return "the order of a set"
    for kind, pattern in _KINDS:
        before, after = (re.sub(pattern, "#", text) for text in (before, after))
        if before == after:
            return kind
    return "another value"


def source_of_change(kind: str, cells: Sequence[str]) -> tuple[int, int, str] | None:
    """Return a line that can produce this kind of value: the number of its cell, its own number, and its code.

    Numbers start at 1. If several lines can, the last cell with such a line counts, and its first such line. If no
    line can, return None.
    """
    pattern = _SOURCES.get(kind)
    for number in range(len(cells), 0, -1) if pattern else ():
        for place, line in enumerate(cells[number - 1].splitlines(), 1):
            if re.search(pattern or "", line) and not line.lstrip().startswith("#"):
                return number, place, line.strip()
    return None


def changes(before: str, after: str) -> Iterator[tuple[int, str, str]]:
    """Yield the differences between two outputs of a cell. Include those that a replay's warnings in `before` name.

    Each difference is a line number in the first output, and both texts.
    """
    lines, others = (
        ["" if _NOT_AS_RECORDED.search(line) else line for line in text.splitlines()] for text in (before, after)
    )
    for kind, i, k, j, m in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        one, other = "\n".join(lines[i:k]).strip(), "\n".join(others[j:m]).strip()
        if kind != "equal" and one != other and sorted(lines) != sorted(others):
            yield i + 1, one, other
    if lines != others and sorted(lines) == sorted(others):
        first = next(place for place, (one, other) in enumerate(zip(lines, others, strict=True)) if one != other)
        yield first + 1, "\n".join(lines[first:]).strip(), "\n".join(others[first:]).strip()
    for number, line in enumerate(before.splitlines(), 1):
        if match := _NOT_AS_RECORDED.search(line):
            yield number, match[1], match[2]
