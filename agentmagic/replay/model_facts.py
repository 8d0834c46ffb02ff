"""Facts about the model, such as its name, that are stored in a recorded turn: a replay does not create the model."""

from collections.abc import Callable
from typing import Any

from agentmagic import settings
from agentmagic.agent import Agent
from agentmagic.providers.addresses import shown
from agentmagic.providers.base import Advising, Model, honoured_settings
from agentmagic.providers.outside import display_name
from agentmagic.providers.registry import address_of
from agentmagic.replay.cassette import Take
from agentmagic.replay.exchange import Json, blank_secrets
from agentmagic.serve.client_model import ClientModel


def model_facts(recipe: Agent, model: Model) -> Json:
    """Return the facts about a model that are stored in the first document of a recorded turn."""
    spec, names = _spec(recipe), honoured_settings(model, recipe.settings).given
    facts: Json = {
        "model": model.name,
        "asked": spec if spec != model.name else "",
        "address": blank_secrets(shown(address_of(model) or "")),
        "advice": blank_secrets(model.advice()) if isinstance(model, Advising) else "",
        "left out": [name for name in recipe.settings.given if name not in names],
    }
    return {name: value for name, value in facts.items() if value}


def model_name(recipe: Agent, take: Take | None, real: Callable[[], Model]) -> str:
    """Return the name of the model for a turn. Without a recorded turn, `real` creates the model to get its name."""
    if take is None:
        return real().name
    head, spec = take.head, _spec(recipe)
    recorded_name = str(head.get("model", ""))
    return recorded_name if spec in ("", recorded_name, head.get("asked")) else spec


def _spec(recipe: Agent) -> str:
    """Return the model as the user wrote it, or "" if the user chose none. The path of a command loses its folders."""
    own = recipe.model
    model: Any = (own if isinstance(own, ClientModel) else settings.model_override() or own) or ""
    return display_name(model) if isinstance(model, str) else str(model.name)
