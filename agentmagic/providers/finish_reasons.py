"""Says how an answer ended, from the word with which a server ends it: one table for all providers.

A word that is in no row is unknown: it does not count as success.
"""

from typing import Literal

from agentmagic.errors import BadRequest, MalformedCall
from agentmagic.providers.failures import quote, stream_broken

Ending = Literal["whole", "cut", "unknown"]
"""How an answer ended that can be used: whole, cut at a length limit, or for a reason that is in no row."""

# From the providers' API references, read in 2026-11: OpenAI (Chat Completions, Responses), Anthropic, Gemini, Amazon
# Bedrock (Converse), Mistral, DeepSeek, Z.ai, Moonshot, xAI, Cohere, Together, IBM watsonx, Aleph
# Alpha, SambaNova, Baidu; and from the servers vLLM,
# SGLang, TGI, llama.cpp, LM Studio, Ollama. Some gateways write the words of one provider in the API of another. Case,
# "_", "-" and blanks do not count.
_WORDS: dict[str, str] = {
    "whole": "stop end end_turn end_of_turn stop_sequence stop_string_found stop_word eos eos_token eos_found eot "
    "endoftext end_of_text stop_criteria_met stop_sequence_reached normal "
    "tool_call tool_calls tool_use function_call function_calls complete completed done finish finished success "
    "pause_turn load unload no_candidates",
    "cut": "length max_tokens max_output_tokens max_completion_tokens max_new_tokens max_length max_len token_limit "
    "maximum_tokens max_len_reached "
    "limit length_limit model_length model_context_window_exceeded context_length context_length_exceeded "
    "context_length_reached context_window_exceeded max_context max_predicted_tokens_reached error_limit incomplete",
    "refused": "content_filter content_filtered content_filter_error filtered refusal sensitive safety blacklist "
    "blocklist blocked recitation prohibited_content spii language image_safety image_prohibited_content "
    "image_recitation guardrail guardrail_intervened guardrails moderation moderated error_toxic policy_violation "
    "content_policy_violation model_armor jailbreak escalation pup_limited_disabled",
    "broken": "error failed failure network_error server_error internal_error connection_error upstream_error abort "
    "aborted cancel canceled cancelled user_cancel user_stopped interrupted timeout timed_out overloaded "
    "insufficient_system_resource insufficient_system_resources preempted model_unloaded connection_closed "
    "not_finished",
    "malformed": "malformed_function_call malformed_tool_use malformed_tool_call malformed_model_output "
    "malformed_response unexpected_tool_call too_many_tool_calls function_call_filter",
}


def _bare(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower())).removeprefix("finishreason")


_KINDS = {_bare(word): kind for kind, words in _WORDS.items() for word in words.split()}
_LONGEST = 100
"""The most characters of a reason that are read. A longer reason is unknown."""


def kind_of(reason: str) -> str:
    """Return the row of a finish reason: "whole", "cut", "refused", "broken", "malformed", or else "unknown".

    A reason can have a detail after a colon, as from Google's endpoint for OpenAI's API: "content_filter: RECITATION".
    """
    word = reason[:_LONGEST].partition(":")[0]
    return _KINDS.get(_bare(word), "unknown") if reason else "whole"


def ending_of(reason: str) -> Ending:
    """Return how an answer ended; an empty reason stands for a whole answer.

    Raises BadRequest if a filter withheld the answer, MalformedCall if the model wrote a call that cannot be read, and
    StreamBroken if the server broke the answer off. The loop sends the request again after the last two.
    """
    match kind_of(reason):
        case "refused":
            raise filter_error(reason)
        case "malformed":
            raise MalformedCall(f"The model wrote a tool call that cannot be read ({shown(reason)}). Ask again.")
        case "broken":
            raise stream_broken(f"the response ended before it was complete ({shown(reason)})")
        case "whole":
            return "whole"
        case "cut":
            return "cut"
        case _:
            return "unknown"


def filter_error(reason: str = "content_filter") -> BadRequest:
    """Return the error for an answer that the provider's content filter stopped, at its beginning or in the middle."""
    why = "" if _bare(reason) == "contentfilter" else f" ({shown(reason)})"
    return BadRequest(
        f"The provider withheld the answer: its content filter stopped it{why}. Word the request differently."
    )


def unknown_end(reason: str) -> str:
    """Return the message for an answer that the server ended with a `reason` that is in no row of the table."""
    return (
        f"The server ended the answer for a reason that agentmagic does not know, {shown(reason)!r}, so the answer may "
        "be incomplete. What came is kept. Ask the model to go on, or ask again."
    )


def shown(reason: str) -> str:
    """Return a reason as messages show it: on one line, without secrets, and shortened."""
    return quote(reason[:_LONGEST])[:60]
