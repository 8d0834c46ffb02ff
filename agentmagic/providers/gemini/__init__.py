"""Google's Gemini API and Vertex AI (`gemini:`)."""

import re

from agentmagic.providers.base import KINDS, Family, Provider

BASE_URL = "GOOGLE_GEMINI_BASE_URL"
KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
"""The variables that can hold the key, in the order in which Google's SDK reads them."""

PROVIDERS = (
    Provider(
        name="gemini",
        make="agentmagic.providers.gemini.model:Gemini",
        about="Google Gemini",
        default="gemini-3.5-flash",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_begins="AIza",
        base_url=BASE_URL,
        package="google.genai",
        extra="gemini",
        prices="google",
        # The limits are from https://ai.google.dev/gemini-api/docs/models.
        families=(Family(re.compile(r"gemini-"), KINDS, 1_000_000, "google", output=65_536),),
    ),
)
