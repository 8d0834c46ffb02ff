"""Finds the models that a user without an API key can choose.

The choices are the local model, a model server on this machine, or a provider for which the user types a key.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from agentmagic.errors import MissingExtra, ProviderError
from agentmagic.providers import local, ollama
from agentmagic.providers.base import Model, Provider
from agentmagic.providers.clients import listed_names
from agentmagic.providers.local import downloads
from agentmagic.providers.registry import providers
from agentmagic.runtime.engine import engine
from agentmagic.text import is_loopback

COMPATIBLE = (("LM Studio", 1234), ("llama.cpp", 8080), ("vLLM", 8000))
"""Servers that speak Chat Completions, each with its default port."""

WAIT = 0.5
"""Seconds to wait for the answer of a server on this machine."""

LOCAL = f"{local.PROVIDERS[0].name}:{local.PROVIDERS[0].default}"


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A model server on this machine, with its models; `address` is "" for Ollama, which has its own provider."""

    name: str
    address: str
    models: tuple[str, ...]

    def model(self, name: str) -> str | Model:
        """Return a model of this server: its full name for Ollama, or else a model object. Raises MissingExtra."""
        if not self.address:
            return f"{ollama.PROVIDER}:{name}"
        if find_spec("openai") is None:
            raise MissingExtra(self.name, "openai")
        from agentmagic.providers.openai.chat_completions import OpenAIChat

        return OpenAIChat(name, base_url=self.address)


async def find_servers() -> tuple[FoundServer, ...]:
    """Return the servers on this machine that list models. Tries only loopback addresses. Must run on the engine."""
    looks = [engine().in_pool(partial(_compatible, name, port)) for name, port in COMPATIBLE]
    servers = await asyncio.gather(engine().in_pool(_ollama), *looks)
    return tuple(server for server in servers if server.models)


def _ollama() -> FoundServer:
    return FoundServer("Ollama", "", tuple(ollama.list_installed()) if is_loopback(ollama.host()) else ())


def _compatible(name: str, port: int) -> FoundServer:
    address = f"http://127.0.0.1:{port}/v1"
    return FoundServer(name, address, tuple(listed_names(f"{address}/models", ("data", "id"), WAIT)))


def keyed_providers() -> Iterator[Provider]:
    """Yield the providers that need an API key. Of those that read it from the same variable, yield only the first."""
    seen_keys: set[str] = set()
    for row in providers().values():
        if row.keys and row.keys[0] not in seen_keys:
            seen_keys.add(row.keys[0])
            yield row


def local_model() -> tuple[str, str]:
    """Return a sentence about the local model, and the command that installs its package, or "" if it is installed."""
    row, about = local.PROVIDERS[0], f"Its weights ({downloads.SIZE / 1e9:.1f} GB) are fetched once."
    with suppress(ProviderError):  # `AGENTMAGIC_LOCAL_MODEL` names a wrong file: the turn will report it
        if downloads.find() is not None:
            about = "Its weights are on this machine."
    command = "" if find_spec(row.package) else MissingExtra(row.name, row.extra).command
    return f"{about} It needs no key, and nothing leaves this machine.", command
