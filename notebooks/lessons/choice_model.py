"""A stand-in for a model that calls a tool only if it has to, for exercises on `tool_choice`."""

import re

from agentmagic import ModelFinished, PartFinished, PartStarted, Text, ToolCall, Usage

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")


class ChoiceModel:
    """Answers from memory, wrongly, unless `tool_choice` forces a call; the answer after a call is its result.

    If any tool may be called ("required"), the first one on the list is. A parameter is the day of the question.
    """

    name = "lesson:choice"

    def __init__(self) -> None:
        self.choices: list[str] = []

    async def stream(self, request):
        """Answer a request with a call or a text."""
        self.choices.append(request.tool_choice)
        part = self._next(request)
        yield PartStarted(0, part.type, getattr(part, "name", ""))
        yield PartFinished(0, part)
        yield ModelFinished(Usage(), "stop")

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""

    def _next(self, request) -> Text | ToolCall:
        last = request.messages[-1]
        if last.role == "tool":
            return Text(last.parts[-1].text)
        names = [tool.name for tool in request.tools]
        name = names[0] if request.tool_choice == "required" and names else request.tool_choice
        if name not in names:
            return Text("You are welcome." if re.search("(?i)thank", last.text) else "About 2 euros, if I remember rightly.")
        number = sum(len(message.calls) for message in request.messages) + 1
        day = next((day for day in DAYS if day.lower() in last.text.lower()), "Friday")
        return ToolCall(f"call_{number}", name, {"day": day})
