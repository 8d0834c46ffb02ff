"""A stand-in for a model that goes by words alone, for exercises whose outcome must depend on your words."""

import re
from difflib import get_close_matches

from agentmagic import ModelFinished, PartFinished, PartStarted, Text, ToolCall, Usage

SMALL = {"the", "and", "for", "are", "has", "have", "how", "what", "when", "does", "did", "which", "who", "from", "with"}
MOST_CALLS = 3


def words_of(text: str) -> set[str]:
    """Return the words of a text in lower case, without an s at the end, and without the small ones."""
    words = {word.rstrip("s") for word in re.findall(r"[a-z]{3,}", text.lower().replace("_", " "))}
    return words - {word.rstrip("s") for word in SMALL}


def types_in(schema, parameters) -> list:
    """Return the simple types that the type of a parameter consists of: an Enum has a name, and `A | B` two parts."""
    if "$ref" in schema:
        return types_in(parameters["$defs"][schema["$ref"].rpartition("/")[2]], parameters)
    return [one for part in schema["anyOf"] for one in types_in(part, parameters)] if "anyOf" in schema else [schema]


def choices_in(schema, parameters) -> list:
    """Return the values that the type of a parameter lists, such as those of a Literal or an Enum."""
    return [value for one in types_in(schema, parameters) for value in one.get("enum", [one["const"]] if "const" in one else [])]


class WordModel:
    """Calls the tool whose name and description share the most words with the question, the first one of equals.

    An argument is the value of its list that the question has, a number if it has to be one, else a name of the
    question, else the whole question. If a call fails, and the error has a word that is like an argument, the model
    takes that word and tries again. The answer is the last result.
    """

    name = "lesson:words"

    async def stream(self, request):
        """Answer a request with a call or a text."""
        part = self._next(request)
        yield PartStarted(0, part.type, getattr(part, "name", ""))
        yield PartFinished(0, part)
        yield ModelFinished(Usage(), "stop")

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""

    def _next(self, request) -> Text | ToolCall:
        messages = list(request.messages)
        start = max(place for place, message in enumerate(messages) if message.role == "user")
        question, calls = messages[start].text, [call for message in messages[start:] for call in message.calls]
        number = sum(len(message.calls) for message in messages) + 1
        if not calls:
            return self._first_call(question, request.tools, f"call_{number}")
        result = messages[-1].parts[-1]
        if result.is_error and len(calls) < MOST_CALLS and (better := self._mended(calls[-1], result.text)):
            return ToolCall(f"call_{number}", calls[-1].name, better)
        return Text(f"That failed: {result.text}" if result.is_error else result.text)

    def _first_call(self, question: str, tools, identity: str) -> Text | ToolCall:
        def likeness(tool) -> int:
            return len(words_of(question) & words_of(f"{tool.name} {tool.description}"))

        best = max(tools, key=likeness, default=None)
        if best is None or not likeness(best):
            return Text("I see no tool that has to do with this.")
        properties = best.parameters.get("properties", {})
        values = {name: self._value(question, one, best.parameters) for name, one in properties.items()}
        return ToolCall(identity, best.name, values)

    def _value(self, question: str, schema, parameters) -> object:
        if choices := choices_in(schema, parameters):
            return next((one for one in choices if str(one).lower() in question.lower()), choices[0])
        if any(one.get("type") in ("integer", "number") for one in types_in(schema, parameters)):
            return int((re.findall(r"\d+", question) or ["0"])[0])
        return (re.findall(r"(?<=[a-z] )[A-Z]\w+", question) or [question])[0]

    def _mended(self, call: ToolCall, error: str) -> dict[str, object] | None:
        known = re.findall(r"\w+", error)
        for name, value in call.arguments.items():
            others = [word for word in known if word != value]
            if isinstance(value, str) and (close := get_close_matches(value, others, n=1)):
                return {**call.arguments, name: close[0]}
        return None
