"""The floor: the same work by hand, with httpx2 and json and nothing else."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

TOOL = {
    "type": "function",
    "function": {
        "name": "echo",
        "description": "Repeat a text.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


class Floor:
    """A conversation over Chat Completions, written out by hand."""

    def __init__(self, base_url: str) -> None:
        self._url = f"{base_url}/chat/completions"
        self._client = httpx2.AsyncClient(timeout=None)
        self.messages: list[dict[str, Any]] = []

    async def stream(self) -> AsyncIterator[dict[str, Any]]:
        """Send the conversation and yield the chunks of the answer."""
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"model": "bench", "messages": self.messages, "tools": [TOOL], **options}
        async with self._client.stream("POST", self._url, json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line[6:])

    async def ask(self, prompt: str) -> str:
        """Play one turn: request, calls, results, until there is an answer."""
        self.messages.append({"role": "user", "content": prompt})
        while True:
            text, calls = await self._step()
            if not calls:
                self.messages.append({"role": "assistant", "content": text})
                return text
            self.messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
            for call in calls:
                (argument,) = json.loads(call["function"]["arguments"]).values()
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(argument)})

    async def _step(self) -> tuple[str, list[dict[str, Any]]]:
        pieces: list[str] = []
        calls: list[dict[str, Any]] = []
        async for chunk in self.stream():
            for choice in chunk["choices"]:
                pieces.append(choice["delta"].get("content") or "")
                for delta in choice["delta"].get("tool_calls", []):
                    if delta["index"] == len(calls):
                        calls.append({**delta, "function": dict(delta["function"])})
                    else:
                        calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
        return "".join(pieces), calls

    async def first_token(self, prompt: str) -> None:
        """Ask, and return at the first piece of the answer."""
        self.messages = [{"role": "user", "content": prompt}]
        async for _ in self.stream():
            return

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
