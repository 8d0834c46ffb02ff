"""What providers do themselves, searches, pages, programs and citations, becomes parts, and goes back to them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agentmagic import Agent, Session, web_search
from agentmagic.errors import MalformedCall, ProviderError
from agentmagic.events import Fold, StepStarted
from agentmagic.messages import (
    Citation,
    HostedCall,
    HostedResult,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    user,
    with_source_links,
)
from agentmagic.providers import hosted
from agentmagic.providers.anthropic import encoder as anthropic
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.base import ModelFinished, Request
from agentmagic.providers.gemini import encoder as gemini
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.client import read_citations
from agentmagic.providers.openai.responses import Decoder as ResponsesDecoder
from agentmagic.testing import run
from tests.providers.loopback import Exchange, Loopback, ask, sse
from tests.providers.server_traffic import (
    ALL,
    ANSWERS,
    CLAUDE,
    CLOCK,
    FETCH,
    FLASH,
    FLASH_25,
    HELLO,
    KEY,
    PAGE,
    SEARCH,
    SHANNON,
    VALID,
    WEB,
    WIKIPEDIA,
    answers,
    begun,
    body_of,
    connected,
    decoded,
    decoder_of,
    ended,
    made,
    model_of,
    own,
    parts_of,
    provider_of,
    result,
    said,
    streamed,
    told,
    use,
    viewed,
)
from tests.providers.strict.rules import Api

# ---- answers


@ALL
def test_what_a_server_did_is_told_and_what_the_answer_cites_stands_at_its_words(name: str):
    searches, expected = ANSWERS[name]
    exchange = made(name)[0]
    body, status, content_type = exchange["body"], exchange["status"], exchange["content_type"]
    with Loopback([Exchange(body, status, content_type)]) as server:
        model = connected(name, server.url)
        events = ask(
            model, Request((HELLO,), hosted=tuple(tool for tool in WEB[provider_of(name)] if model.hosts(tool)))
        )
    assert [told(part) for part in parts_of(events)] == expected
    assert isinstance(events[-1], ModelFinished)
    assert events[-1].usage.searches == searches


@ALL
def test_each_call_has_one_result_and_every_part_of_the_server_is_sent_back_by_its_provider_alone(name: str):
    parts = parts_of(answers(name))
    calls = [part.id for part in parts if isinstance(part, HostedCall)]
    assert sorted(calls) == sorted(part.call_id for part in parts if isinstance(part, HostedResult))
    provider = provider_of(name)
    owned = [part for part in parts if isinstance(part, HostedCall | HostedResult) or getattr(part, "citations", ())]
    assert all(part.provider_data.provider == provider for part in owned)
    history = (HELLO, Message("assistant", parts), user("And?"))
    assert viewed(provider, *history)[1] is history[1]


def test_a_page_that_an_earlier_answer_has_read_is_cited_by_its_address():
    first = parts_of(answers("anthropic_fetch"))
    words = "It will not replace nurses."
    place = {"type": "char_location", "cited_text": words, "document_index": 0, "document_title": "Article Title"}
    others = [place | {"document_title": "A file of the user's"}, place | {"cited_text": "Words of a file."}]
    body = sse(*said(0, "Nurses stay.", place, *others), *ended())
    with Loopback([Exchange(body)]) as server:
        request = Request((HELLO, Message("assistant", first), HELLO))
        events = ask(Anthropic(CLAUDE, base_url=server.url, api_key=KEY), request)
    assert told(parts_of(events)[0]) == (
        "Nurses stay.",
        ("Nurses stay.", "https://example.com/article", "Article Title"),
    )


def test_the_usage_of_gemini_falls_while_its_servers_search_and_the_most_counts():
    usage = answers("gemini_search_3_functions")[-1].usage
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (87, 99, 78)


ABOVE, BELOW = "Über 🌉. ", "Schön — ja."


@pytest.mark.parametrize(
    ("segment", "first", "second"),
    [
        ({"endIndex": 10, "text": "Über 🌉"}, ["Über 🌉"], []),  # bytes; the beginning is 0
        ({"startIndex": 12, "endIndex": 18, "text": "Schön"}, [], ["Schön"]),
        ({"startIndex": 14, "endIndex": 20, "text": "Schön"}, [], ["Schön"]),  # 2 bytes off
        ({"startIndex": 12, "endIndex": 18}, [], ["Schön"]),
        ({"startIndex": 18, "endIndex": 12, "text": "Schön"}, [], ["Schön"]),
        ({"startIndex": 0, "endIndex": 999, "text": "gone"}, [], [""]),  # a source of the answer
        ({"startIndex": 0, "endIndex": 27, "text": f"{ABOVE}{BELOW}"}, [], [BELOW]),  # of the part with its end
    ],
)
def test_gemini_counts_bytes_of_all_words_of_an_answer_but_not_its_thoughts(segment: Any, first: Any, second: Any):
    grounds = {"groundingChunks": [{"web": {"uri": PAGE}}]}
    grounds |= {"groundingSupports": [{"segment": segment, "groundingChunkIndices": [0]}]}
    search = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1", "args": {}}}
    found = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "s1", "response": {}}}
    given = [search, found, {"text": ABOVE}, {"text": "Hm. ", "thought": True}, {"text": BELOW}, {"text": ""}]
    chunks: list[Any] = [{"candidates": [{"content": {"parts": [part]}}]} for part in given]
    chunks[-1]["candidates"][0] |= {"finishReason": "STOP", "groundingMetadata": grounds}
    texts = [part for part in parts_of(decoded(decoder_of("gemini"), chunks)) if isinstance(part, Text)]
    assert [part.text for part in texts] == [ABOVE, BELOW]
    assert [[part.text[one.start : one.end] for one in part.citations] for part in texts] == [first, second]


@pytest.mark.parametrize(
    ("start", "end"),
    [(4, 19), (5, 20), (None, None), (0, 0), (19, 4), (0, 999)],
    ids=["code points", "UTF-16", "none", "0 and 0", "reversed", "too far"],
)
def test_openai_counts_in_any_unit_and_the_address_decides(start: Any, end: Any):
    text = f"🌉: ({PAGE}) is."
    annotation = {"type": "url_citation", "url": PAGE, "start_index": start, "end_index": end}
    message = {"type": "message", "content": [{"type": "output_text", "text": text, "annotations": [annotation]}]}
    last = {"type": "response.completed", "response": {"output": [message]}}
    (part,) = parts_of(decoded(ResponsesDecoder(), [last]))
    assert PAGE in [text[one.start : one.end].strip("()") for one in part.citations]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"So ([a page]({PAGE})). More", f"([a page]({PAGE}))"),
        (f"So [[1]]({PAGE}) more", f"[[1]]({PAGE})"),
        (f"So a [page]\n]({PAGE}) more", PAGE),
        (f"So {'a' * 400}]({PAGE}) more", PAGE),
        (f"So {PAGE} more", PAGE),
        ("So more", ""),
    ],
)
def test_a_source_without_a_place_stands_at_its_link(text: str, place: str):
    (found,) = read_citations(text, [{"url": PAGE}])
    assert text[found.start : found.end] == place


def test_gemini_may_search_without_end():
    with pytest.raises(MalformedCall, match="searched too often"):
        answers("gemini_too_many_tool_calls")


def test_an_answer_of_anthropic_that_pauses_goes_on_with_the_result_that_was_missing():
    first, second = made("anthropic_pause")
    with Loopback([Exchange(one["body"]) for one in (first, second)]) as server:
        events = ask(connected("anthropic_pause", server.url), Request((HELLO,), hosted=(SEARCH,)))
    assert server.requests[1].json["messages"][1:] == second["request"]["messages"][1:]
    assert server.requests[1].json["tools"] == server.requests[0].json["tools"]
    calls = [part.id for part in parts_of(events) if isinstance(part, HostedCall)]
    assert calls == [part.call_id for part in parts_of(events) if isinstance(part, HostedResult)]
    assert told(parts_of(events)[-1])[1:] == (("the air is good", "https://air.example/sf", "SF air quality"),)
    used = [streamed("anthropic_pause", number)[-2]["usage"]["server_tool_use"] for number in (0, 1)]
    assert events[-1].usage.searches == sum(one["web_search_requests"] for one in used)
    assert events[-1].usage.input_tokens == 404_500 + 82_100


SEARCHES = {"web_search_requests": 2}
PAUSED = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 100}}},
    begun(0, use("srvtoolu_1", "web_search")),
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {"server_tool_use": SEARCHES}},
    {"type": "message_stop"},
]
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
CALL = {"toolCall": {"id": "a", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["q1", "q2"]}}}
GOOGLE = {"candidates": [{"content": {"parts": [CALL]}}], "usageMetadata": {"promptTokenCount": 100}}
COUNTED = {"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 100}}
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}


@pytest.mark.parametrize(
    ("name", "answers", "tokens", "searches"),
    [
        ("gemini_search_3_functions", [[GOOGLE, {"candidates": [{"finishReason": "TOO_MANY_TOOL_CALLS"}]}]], 100, 2),
        ("gemini_search_3_functions", [[GOOGLE]], 100, 2),
        ("anthropic_search", [[PAUSED[0], OVERLOADED]], 100, 0),
        ("anthropic_search", [PAUSED, [PAUSED[0], OVERLOADED]], 200, 2),
        ("anthropic_search", [PAUSED, "refused"], 100, 2),
        ("anthropic_search", [PAUSED] * 20, 2_000, 40),
        ("chat_search_model", [[COUNTED, {"choices": [{"finish_reason": "error"}]}]], 100, 1),
        ("chat_search_model", [[COUNTED, {"error": {"message": "no", "code": 500}}]], 100, 1),
        (
            "responses_search",
            [
                [
                    {"type": "response.output_item.done", "output_index": 0, "item": SEARCHED},
                    {"type": "response.failed", "response": {"error": {}, "usage": {"input_tokens": 100}}},
                ]
            ],
            100,
            1,
        ),
    ],
)
def test_what_a_failed_answer_has_used_is_counted(name: str, answers: Any, tokens: int, searches: int):
    exchanges = [Exchange("{}", 500) if one == "refused" else Exchange(sse(*one)) for one in answers]
    with Loopback(exchanges) as server, pytest.raises(ProviderError) as failed:
        ask(connected(name, server.url), Request((HELLO,), hosted=(SEARCH,)))
    assert (failed.value.usage.input_tokens, failed.value.usage.searches) == (tokens, searches)


@pytest.mark.parametrize("name", ["anthropic_search", "chat_search_model", "gemini_search_25", "responses_search"])
def test_a_failed_answer_without_figures_has_used_nothing_that_is_known(name: str):
    with Loopback([Exchange(sse({"type": "ping"}))]) as server, pytest.raises(ProviderError) as failed:
        ask(connected(name, server.url), Request((HELLO,)))
    assert failed.value.usage is None


# ---- the same provider goes on


def _plain(value: Any) -> Any:
    """Return JSON without what is sent for the cache, and without the list of pages that OpenAI does not take back."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key not in ("cache_control", "sources")}
    return [_plain(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("anthropic_search", "messages"),
        ("anthropic_dynamic", "messages"),
        ("anthropic_mixed", "messages"),
        ("responses_search", "input"),
        ("gemini_search_3_functions", "contents"),
        ("gemini_search_25", "contents"),
    ],
)
def test_what_the_server_did_goes_back_as_it_came(name: str, field: str):
    parts = parts_of(answers(name))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    results = [Message("tool", tuple(ToolResult(one.id, one.name, (Text("x"),)) for one in calls))] if calls else []
    history = viewed(provider_of(name), HELLO, Message("assistant", parts), *(results or [user("And?")]))
    body = body_of(provider_of(name), Request(history, hosted=(SEARCH, FETCH)), model_of(name))
    wanted = made(name)[1]["request"][field]
    assert _plain(body[field])[1:-1] == _plain(wanted)[1:-1]


def test_a_mixed_turn_of_anthropic_begins_its_next_answer_with_the_result():
    call, clock = HostedCall("srv_1", "web_fetch", {}, "Anthropic", own(use("srv_1"))), ToolCall("t1", "clock", {})
    asked = Message("assistant", (Text("I look."), call, clock))
    answered = Message("tool", (ToolResult("t1", "clock", (Text("noon"),)),))
    found = HostedResult("srv_1", "web_fetch", (), "ok", own(result("srv_1")))
    later = Message("assistant", (found, Text("Done.")))
    cut = Message("assistant", (Text("Done."),))
    failed = Message("tool", (ToolResult("t1", "clock", (Media("image/png", b"x"),), "error"),))
    kept, lost = ["server_tool_use"], []
    for history, offered, kinds in (
        ((asked, answered), (FETCH,), kept),  # it is carried out now
        ((asked, answered, later, HELLO), (), kept),  # it was
        ((asked, answered), (), lost),  # the tool is gone
        ((asked, failed), (FETCH,), lost),  # more than results would follow
        ((asked, answered, HELLO), (FETCH,), lost),
        ((asked, answered, cut, HELLO), (FETCH,), lost),
        ((asked, HELLO), (FETCH,), lost),
        ((HELLO, later, HELLO), (FETCH,), lost),  # the call was compacted away
    ):
        request = Request((HELLO, *history), tools=(CLOCK,), hosted=offered)
        body = anthropic.encode(request, CLAUDE)
        blocks = [block for message in body["messages"] for block in message["content"]]
        assert [one["type"] for one in blocks if one["type"] == "server_tool_use"] == kinds
        ids = [one["tool_use_id"] for one in blocks if one["type"] == "web_fetch_tool_result"]
        assert ids == (["srv_1"] if later in history and kinds else [])


# ---- a stream that is cut


@pytest.mark.parametrize("name", [*ANSWERS, "anthropic_mixed", "anthropic_pause"])
def test_a_stream_cut_at_any_event_leaves_a_history_that_every_provider_takes(name: str):
    chunks, provider = streamed(name), provider_of(name)
    for end in range(len(chunks)):
        decoder, fold = decoder_of(provider, model_of(name)), Fold()
        fold.feed(StepStarted(1, name))
        for chunk in chunks[:end]:
            for event in decoder.feed(chunk):
                if not isinstance(event, ModelFinished):
                    fold.feed(event)
        fold.close()
        for other, check in VALID.items():
            history = viewed(other, HELLO, *fold.messages, user("Go on."))
            check(body_of(other, Request(history, hosted=WEB[other])))


# ---- another provider goes on


@pytest.fixture(scope="module")
def apis() -> dict[str, Api]:
    from tests.providers.strict import anthropic, chat, gemini, responses

    kinds = (anthropic.Anthropic, chat.Chat, gemini.Gemini, responses.Responses)
    return {api.name: api() for api in kinds}


@ALL
@pytest.mark.parametrize("other", list(VALID))
def test_another_provider_is_sent_words_and_links(name: str, other: str, apis: dict[str, Api]):
    if other == provider_of(name):
        return
    parts = tuple(part for part in parts_of(answers(name)) if not isinstance(part, Reasoning | ToolCall))
    request = Request(viewed(other, HELLO, Message("assistant", parts), user("And?")))
    body = body_of(other, request, apis[other].asked)
    apis[other].check(apis[other].path, body)
    sent = json.dumps(body | {"include": []}, ensure_ascii=False)
    assert not re.search("encrypted|srvtoolu|thoughtSignature|tool_use|web_search_call|toolCall", sent)
    for part in parts:
        if isinstance(part, Text):
            assert all(one.url in sent for one in part.citations)
        if isinstance(part, HostedResult):
            assert hosted.untrusted_page(part.name) in sent


@pytest.mark.parametrize("name", ["chat_groq_compound", "chat_openrouter"])
def test_another_model_of_a_compatible_server_is_sent_words_and_links(name: str):
    *parts, last = parts_of(answers(name))
    text = Text("So.", last.provider_data, citations=(Citation(0, 3, PAGE, "A page"),))
    history = viewed("openai-chat", HELLO, Message("assistant", (*parts, last, text)), HELLO)
    (own, other) = (body_of("openai-chat", Request(history), model)["messages"][1] for model in (model_of(name), "x"))
    found = [part.name for part in parts if isinstance(part, HostedResult)]
    assert own["content"].endswith("So.")
    assert other["content"].endswith(f"So. [A page](<{PAGE}>)")
    assert all(hosted.untrusted_page(one) in other["content"] for one in found)
    assert hosted.untrusted_page("web_search") not in own["content"]


def test_a_gemini_before_3_is_sent_what_a_later_one_searched_as_words():
    parts = (*parts_of(answers("gemini_url_context_3")), *parts_of(answers("gemini_code_execution")))
    history = viewed("gemini", HELLO, Message("assistant", parts), HELLO)
    kinds = [set(part) for part in gemini.encode(Request(history), FLASH_25)["contents"][1]["parts"]]
    assert not [one for one in kinds if one & {"toolCall", "toolResponse"}]
    assert sum("executableCode" in one for one in kinds) == 2
    later = gemini.encode(Request(history), FLASH)
    assert later["toolConfig"] == {"includeServerSideToolInvocations": True}  # also without the tool: for the history
    assert sum("toolCall" in part for part in later["contents"][1]["parts"]) == 1


def test_the_signature_of_a_search_is_not_that_of_a_call_of_another_model():
    parts = (*parts_of(answers("gemini_url_context_3")), ToolCall("c1", "clock", {}))
    results = Message("tool", (ToolResult("c1", "clock", (Text("noon"),)),))
    answer = gemini.encode(Request((HELLO, Message("assistant", parts[:2] + parts[-1:]), results)), FLASH)["contents"][
        1
    ]
    assert all("thoughtSignature" in part for part in answer["parts"])


def test_a_source_that_the_text_links_already_is_linked_once():
    url = "https://example.com/a"
    text = f"It is so ([a]({url})). And so."
    at = text.index("([a]")
    part = Text(text, citations=(Citation(at, at + len(f"([a]({url}))"), url), Citation(0, 8, url, "A")))
    assert with_source_links(part) == text.replace("It is so", f"It is so [A](<{url}>)")


# ---- a session


def test_a_session_goes_on_with_what_was_searched_at_the_same_provider_and_at_another():
    exchanges = [Exchange(one["body"]) for one in made("anthropic_search")]
    later = Exchange(made("chat_search_model")[0]["body"])
    with Loopback(exchanges) as server, Loopback([later]) as other:
        claude = Anthropic(CLAUDE, base_url=server.url, api_key=KEY)
        session = Session(Agent(claude, tools=[web_search()], permission="allow"))
        first = run(session, "When was Claude Shannon born?")
        run(session, "And where?")
        changed = Agent(OpenAIChat("m", base_url=other.url, api_key=KEY))
        run(Session(changed, messages=session.messages), "Really?")
    assert first.usage.searches == 1
    assert first.usage.cost is None  # nobody knows what this server takes
    assert _plain(server.requests[1].json["messages"]) == made("anthropic_search")[1]["request"]["messages"]
    sent = other.requests[0].json["messages"][1]["content"]
    assert "> [resource https://en.wikipedia.org/wiki/Claude_Shannon]" in sent
    assert f"{SHANNON} [Claude Shannon - Wikipedia](<{WIKIPEDIA[0]}>)" in sent


@pytest.mark.parametrize("name", ["anthropic_search", "responses_search", "gemini_url_context_3", "chat_search_model"])
def test_what_was_searched_is_recorded_and_played_without_the_server(name: str, tmp_path: Path):
    def asked(url: str, replay: Any) -> Any:
        agent = Agent(connected(name, url), tools=[web_search()], permission="allow")
        return run(Session(agent, cassette=tmp_path / "a.cassette.yaml", replay=replay), "Go.")

    with Loopback([Exchange(made(name)[0]["body"])]) as server:
        recorded = asked(server.url, "record")
    played = asked("http://127.0.0.1:9", "replay")
    assert played.history_delta == recorded.history_delta
    assert played.usage.searches == recorded.usage.searches
    assert [told(part) for part in played.history_delta[-1].parts] == ANSWERS[name][1]


def test_a_call_of_the_server_never_runs_a_tool_of_ours():
    ran: list[str] = []

    def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return path

    call = use("s1", "delete") | {"input": {"path": "a.txt"}}
    events = [begun(0, call), begun(1, result("s1", {"stdout": "x"}, "delete_tool_result")), *said(2, "Done.")]
    with Loopback([Exchange(sse(*events, *ended()))]) as server:
        claude = Anthropic(CLAUDE, base_url=server.url, api_key=KEY)
        done = run(Session(Agent(claude, tools=[delete, web_search()], permission="allow")), "Go.")
    assert (done.final_text, ran) == ("Done.", [])
