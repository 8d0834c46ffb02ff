"""What a replay must know of the model of a turn: it does not make the model."""

from collections.abc import Callable
from typing import Any

from agentmagic import settings
from agentmagic.agent import Agent
from agentmagic.providers.base import Advising, Model, honoured
from agentmagic.providers.outside import shown_name
from agentmagic.providers.registry import address_of
from agentmagic.replay.cassette import Take
from agentmagic.replay.exchange import Json, blanked
from agentmagic.serve.client_model import ClientModel


def model_facts(recipe: Agent, model: Model) -> Json:
    """Return what the head of a take says of a model."""
    spec, kept = _spec(recipe), honoured(model, recipe.settings).given
    facts: Json = {
        "model": model.name,
        "asked": spec if spec != model.name else "",
        "address": blanked(address_of(model) or ""),
        "advice": blanked(model.advice()) if isinstance(model, Advising) else "",
        "left out": [name for name in recipe.settings.given if name not in kept],
    }
    return {name: value for name, value in facts.items() if value}


def model_name(recipe: Agent, take: Take | None, real: Callable[[], Model]) -> str:
    """Return the name of the model that a turn asks for. No model is made for it if a take answers."""
    if take is None:
        return real().name
    head, spec = take.head, _spec(recipe)
    known = str(head.get("model", ""))
    return known if spec in ("", known, head.get("asked")) else spec


def _spec(recipe: Agent) -> str:
    """Return the model as the user wrote it, without the folders of a command, "" if none is chosen."""
    own = recipe.model
    chosen: Any = (own if isinstance(own, ClientModel) else settings.model_override() or own) or ""
    return shown_name(chosen) if isinstance(chosen, str) else str(chosen.name)
