"""Anthropic's Messages API (`anthropic:`), and servers that speak it."""

import re

from agentmagic.providers.base import READS, Family, Provider

KEY = "ANTHROPIC_API_KEY"
BASE_URL = "ANTHROPIC_BASE_URL"

PROVIDERS = (
    Provider(
        name="anthropic",
        make="agentmagic.providers.anthropic.model:Anthropic",
        about="Anthropic Claude, and any server that speaks its Messages API (ANTHROPIC_BASE_URL)",
        default="claude-sonnet-5-5",
        keys=(KEY,),
        key_begins="sk-ant-",
        base_url=BASE_URL,
        package="anthropic",
        extra="anthropic",
        prices="anthropic",
        # The limits are from https://platform.claude.com/docs/en/about-claude/models/overview.
        families=(Family(re.compile(r"claude-"), READS, 200_000, "anthropic", output=64_000),),
    ),
)
