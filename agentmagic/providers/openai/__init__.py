"""OpenAI's two APIs: Responses (`openai:`) and Chat Completions (`openai-chat:`), which many other servers speak."""

import re
from dataclasses import replace

from agentmagic.providers.base import READS, Family, Provider

KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"

# From GPT-5 on, the last 128,000 tokens of the context window are for the answer: a prompt that needs them is refused
# (https://developers.openai.com/api/docs/models). According to OpenAI's guides to images and files, a model that reads
# images reads PDF too. agentmagic sends no sound to OpenAI.
_FAMILIES = (
    Family(re.compile(r"gpt-oss")),
    Family(
        re.compile(r"gpt-3|gpt-4(-\d{4}|-32k|-turbo-preview|$)|o1-(mini|preview)|o3-mini|gpt-(4o-)?(mini-)?audio"),
        window=128_000,
        maker="openai",
    ),
    Family(re.compile(r"gpt-([5-9]|\d\d)"), READS, 128_000, "openai", answer=128_000),
    Family(re.compile(r"gpt-(\d|chat)|chatgpt-|o\d(-|$)|codex-|computer-use"), READS, 128_000, "openai"),
)

_RESPONSES = Provider(
    name="openai",
    make="agentmagic.providers.openai.responses:OpenAIResponses",
    about="OpenAI (Responses)",
    default="gpt-5.4",
    keys=(KEY,),
    key_begins="sk-",
    base_url=BASE_URL,
    package="openai",
    extra="openai",
    prices="openai",
    families=_FAMILIES,
)
PROVIDERS = (
    _RESPONSES,
    replace(
        _RESPONSES,
        name="openai-chat",
        make="agentmagic.providers.openai.chat_completions:OpenAIChat",
        about="OpenAI Chat Completions, and any server that speaks it (OPENAI_BASE_URL)",
    ),
)
