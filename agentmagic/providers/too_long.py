"""Tells whether a server's error means that a conversation is too long for the model: one table for all providers.

Which field of the request the server names decides first: a summary makes no tool's name and no key shorter.
"""

import re

# From the providers' documents, the servers' sources and public reports of their messages, read in 2026-11.
_CODES = frozenset(
    {
        *("contextlengthexceeded", "contextwindowexceeded", "contextwindowexceedederror"),  # OpenAI and others, LiteLLM
        *("contexttoolong", "inputtoolong", "prompttoolong", "requesttoolarge"),  # the last of Anthropic
        *("exceedcontextsizeerror", "modelcontextwindowexceeded", "1261"),  # llama.cpp, Z.ai
        *("modelmaxprompttokensexceeded", "tokenslimitreached"),  # GitHub
    }
)
"""The codes of errors, in lower case and without "_"."""
_WORDS = (
    # OpenAI, Azure, vLLM, SGLang, DeepSeek, OpenRouter, Fireworks, Mistral, llama.cpp, LM Studio, Ollama, MiniMax, ...
    r"context ?(?:length|window|size|limit)|context_(?:length|window)_exceed",
    r"exceeds? (?:the )?context\b",
    r"(?:prompt|input|conversation) (?:is |are )?too long",  # Anthropic, Amazon Bedrock, AI21
    r"\bprompt (?:exceeds (?:the )?max|超长)",  # Z.ai
    r"maximum prompt length",  # xAI
    r"token count\b.{0,40}\bexceeds|exceeds the maximum number of tokens",  # Gemini, GitHub Copilot
    r"token count is \d+ but",  # Vertex AI
    r"reduce the (?:length|size) of the (?:messages|prompt|input)",  # Groq, Cerebras
    r"exceeded model token limit",  # Moonshot
    r"maximum (?:model|sequence|input|allowed input) length",  # vLLM, Databricks, Poolside
    r"range of input length should be",  # DashScope
    r"request body too large for .{1,80} model",  # GitHub Models
    r"\binputs?`? (?:tokens? )?\+ `?max_new_tokens`? must be|`inputs` must have less than",  # Together, TGI
    r"too many (?:input |prompt |total )?tokens",  # Cohere, Databricks
    r"(?:input|prompt)(?: prompt)? length\b.{0,40}\bexceed",  # Volcengine, SambaNova
    r"length of prompt_tokens\b|sum of prompt length",  # SiliconFlow, TensorRT-LLM
    r"exceeds? (?:the )?max(?:imum)? (?:number of )?input tokens",  # Amazon Bedrock
    r"exceed max message tokens",  # Volcengine
    r"input token length too long",  # Moonshot
    r"\binput tokens exceed|number of input tokens\b.{0,20}\bcannot exceed",  # OpenAI, IBM watsonx
    r"max tokens of \d+ exceeded",  # Snowflake
    r"malformed input request: expected maxlength",  # Amazon Bedrock
    r"max_tokens must be at least 1, got -\d",  # vLLM, if the prompt leaves no tokens for the answer
    r"request payload size exceeds the limit",  # Gemini
    r"tokens in request more than max tokens|token limit exceeded|exceeds? (?:the )?(?:model'?s? )?token limit",
)
_TOO_LONG = re.compile("|".join(_WORDS), re.IGNORECASE | re.DOTALL)
_LONGEST = 4_000
"""The most characters of an error that are searched."""
_FULL = re.compile(r"context size has been exceeded\.?", re.IGNORECASE)
"""The words of llama.cpp for a conversation that grew too long during the answer; their code is 500."""

_RATE = re.compile(
    r"per[ -](?:minute|min|hour|day|second)\b|\b[TR]P[MD]\b|rate.?limit|quota|throttl|too many requests|please wait"
    r"|\b(?:daily|monthly) ",
    re.IGNORECASE,
)
"""Words of a limit for a span of time, which also counts tokens."""
_SHARE = re.compile(r"\blimit:? (\d[\d,]{0,14}).{0,20}\brequested:? (\d[\d,]{0,14})", re.IGNORECASE)
_ATTACHED = re.compile(r"\b(?:images?|pictures?|videos?|audio|documents?|files?|attachments?|tools?)\b", re.IGNORECASE)

_FIELD = re.compile(
    r"invalid (?:value for )?['\"`]([\w.\[\]-]{1,200})['\"`]"
    r"|^(?![\w.]*(?:Error|Exception))['\"`]?([a-z_]\w*(?:\.[\w-]+|\[\w+\])+)['\"`]?:",
    re.IGNORECASE,
)
"""The field that the words of a refusal name: "Invalid 'tools[0].function.name': ..." or "tools.0.custom.name: ..."."""
_TOO_LONG_FIELD = re.compile(
    r"string.(?:too.long|above)|string should have at most|(?:text|input|content) too long", re.IGNORECASE
)
_TOO_MANY = re.compile(r"array.(?:too.long|above)", re.IGNORECASE)
_TALK = frozenset({"messages", "input", "inputs", "contents", "prompt", "input_tokens", "prompt_tokens"})
_TEXTS = frozenset({"content", "text", "output", "arguments", "parts"})
_LENGTH = re.compile(r"max_?\w*_?tokens", re.IGNORECASE)

_WINDOW = re.compile(r"(?:context|model|prompt) (?:length|window)\D{0,20}(\d{1,9})|must be <= (\d{1,9})", re.IGNORECASE)
_ASKED = re.compile(
    r"too large: ?(\d{1,9})|(\d{1,9}) (?:tokens )?(?:in|for) the completion|(\d{1,9}) output tokens"
    r"|(\d{1,9}) `max_new_tokens`",
    re.IGNORECASE,
)
"""The window, and the longest answer that a request asks for, in tokens."""
_ONLY_ANSWER = re.compile(
    r"\W?max_?\w*_?tokens\b(?!.*(?:\b(?:inputs?|prompt|messages?)\b|got -\d))", re.IGNORECASE | re.DOTALL
)
"""The beginning of a message about the limit of output that does not mention the conversation."""


def is_too_long(message: str, code: str = "", param: str = "", status: int | None = None) -> bool:
    """Return whether an error of a server means that the conversation does not fit the model's window.

    `code` and `param` are the fields of the error in OpenAI's form, `status` is the HTTP status if there is one. A
    limit for a span of time, an attachment that is too large, and any other field that is too long are not meant.
    """
    message = message[:_LONGEST]
    named = _FIELD.search(message)
    field = param[:_LONGEST] or (named[1] or named[2] if named else "")
    is_code = code.replace("_", "").lower() in _CODES
    names = [name for name in re.findall(r"[A-Za-z_]\w*", field) if name != "body"]
    is_talk = bool(names) and names[0] in _TALK and (len(names) == 1 or names[-1] in _TEXTS)
    if _RATE.search(message) or (names and not is_talk and not _LENGTH.fullmatch(field)):
        return False
    if is_code or status not in (None, 400, 413, 422):
        return is_code or _FULL.fullmatch(message.strip()) is not None
    if status == 413 and not _ATTACHED.search(message):  # noqa: PLR2004  (HTTP: the content is too large)
        return True
    if is_talk and _says_field_is_too_long(f"{code} {message}", names):
        return True
    return _TOO_LONG.search(message) is not None and not _asks_for_too_much(message)


def is_rate_limit(message: str) -> bool:
    """Return whether the words of an error mean a limit for a span of time, such as the tokens per minute."""
    return _RATE.search(message) is not None


def exceeds_rate(message: str) -> bool:
    """Return whether one request alone is larger than a limit for a span of time, so that waiting cannot help.

    Groq and OpenAI say: "... tokens per minute (TPM): Limit 6000, Requested 14000".
    """
    match = _SHARE.search(message) if _RATE.search(message) else None
    return match is not None and int(match[2].replace(",", "")) > int(match[1].replace(",", ""))


def _says_field_is_too_long(words: str, names: list[str]) -> bool:
    """Return whether a field of the conversation is too long: a text, or the list of messages."""
    is_list = _TOO_MANY.search(words) is not None
    return is_list and len(names) == 1 if is_list else _TOO_LONG_FIELD.search(words) is not None


def _asks_for_too_much(message: str) -> bool:
    """Return whether the longest answer that the request asks for alone is too long."""
    if _ONLY_ANSWER.match(message):
        return True
    window, asked = _WINDOW.search(message), _ASKED.search(message)
    if window is None or asked is None:
        return False
    return int(next(filter(None, asked.groups()))) >= int(next(filter(None, window.groups())))
