"""A small model on the user's own machine (`local:`)."""

import re

from agentmagic.providers.base import FREE, Family, Provider

CONTEXT = 8192
"""The most tokens of a prompt and its reply together. 8192 tokens take 0.1 GB more memory than 4096."""

PROVIDERS = (
    Provider(
        name="local",
        make="agentmagic.providers.local.model:make",
        about="a small model on this machine, no key (1.1 GB, fetched once)",
        default="qwen2.5-coder-1.5b",
        package="xllamacpp",
        extra="local",
        prices=FREE,
        all_models=Family(re.compile(""), window=CONTEXT),
    ),
)
