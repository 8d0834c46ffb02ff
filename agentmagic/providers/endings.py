"""What the words mean with which providers say why an answer ended. A word that is in no row is no success.

OpenAI: https://developers.openai.com/api/reference/resources/chat, Anthropic:
https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons, Gemini:
https://ai.google.dev/api/generate-content#FinishReason. The other words are those of compatible servers and gateways,
read in November 2026.
"""

import re
from typing import Literal

from agentmagic.providers.failures import filter_error, stream_broken
from agentmagic.secrets import redact
from agentmagic.text import single_line

LONGEST_REASON = 60
"""The most characters of a provider's reason that a notice shows."""

Ending = Literal["whole", "cut", "withheld", "broken", "unknown"]
"""How an answer ended: whole, cut at a limit of length, withheld by a filter, broken off by the server, or unknown."""

_ROWS: dict[Ending, str] = {
    "whole": "stop end_turn tool_calls tool_call tool_use function_call stop_sequence stop_sequences eos eos_token "
    "eos_found end end_of_turn end_of_text complete completed done finished finish success succeeded normal "
    "pause_turn stopped tool tools tool_code user_stop interruptible ok",
    "cut": "length max_tokens max_output_tokens max_length max_new_tokens model_length token_limit length_limit "
    "incomplete model_context_window_exceeded context_length_exceeded context_window_exceeded "
    "max_context_length truncated",
    "withheld": "content_filter content_filtered sensitive blacklist blocklist blocked safety refusal recitation "
    "prohibited_content guardrail_intervened guardrail moderation content_moderation content_policy_violation "
    "spii language image_safety image_prohibited_content image_recitation model_armor jailbreak escalation "
    "pup_limited_disabled spii_filter",
    "broken": "error failed failure abort aborted cancel cancelled canceled network_error insufficient_system_resource "
    "load unload timeout time_limit server_error internal_error engine_overloaded overloaded other",
}
_ENDINGS: dict[str, Ending] = {word: ending for ending, words in _ROWS.items() for word in words.split()}


def ending_of(reason: str) -> Ending:
    """Return how an answer ended whose provider gives this reason, in any case and with any separator.

    What follows a colon is a detail: Google's compatible endpoint sends `content_filter: SAFETY`.
    """
    word = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s.-]+", "_", reason.partition(":")[0].strip()).lower()
    return _ENDINGS.get(word.removeprefix("finish_reason_"), "unknown")


def read_ending(reason: str) -> Ending:
    """Return how an answer ended: "whole", "cut" or "unknown".

    Raises BadRequest if a filter withheld the answer, and StreamBroken if the server broke it off.
    """
    ending = ending_of(reason)
    if ending == "withheld":
        raise filter_error()
    if ending == "broken":
        raise stream_broken(f"the response ended before it was complete ({reason})")
    return ending


def unclear_notice(reason: str) -> str:
    """Return a notice for the user about an answer whose ending is unknown."""
    word = single_line(redact(reason), LONGEST_REASON)
    return f"The provider ended the answer for an unknown reason ({word}), so it may not be whole. Ask it to go on."
