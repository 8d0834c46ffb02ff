"""The HTML page of a conversation: whole, without scripts, and with nothing of others in its head."""

import re

import pytest

from agentmagic import secrets
from agentmagic.events import TurnStarted
from agentmagic.export import to_html
from agentmagic.messages import Text, ToolCall, user
from tests.display.logs import MODEL, everywhere, one_call, one_text, started, words_of
from tests.display.test_html_attacks import PAYLOADS, Guard
from tests.export.turns import turn

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def main(page):
    (inside,) = re.findall(r"<main>\n(.*)</main>\n</body>\n</html>\n$", page, re.DOTALL)
    return inside


def test_a_page_has_the_prompts_the_answers_and_the_cards_of_all_turns():
    call = ToolCall("c1", "now", {"zone": "Oslo"})
    page = to_html([turn(*one_text("It is **noon**.")), turn(*one_call(call, Text("12:00"), server="notebook"))])
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n')
    assert "<title>Hello</title>" in page
    assert f'content="{POLICY}"' in page
    assert words_of(main(page)).startswith(
        f"Hello It is noon. {MODEL} · 7.3 s · $0.0019 Hello ✓ now notebook zone: Oslo"
    )
    assert "<strong>noon</strong>" in page
    assert page.count("<title>") == page.count("<style>") == page.count("<main>") == 1


def test_a_conversation_without_turns_is_a_page_too():
    assert "<title>Conversation</title>" in to_html([])


def test_the_title_is_the_beginning_of_the_first_prompt_on_one_line():
    begun = TurnStarted(user(f"Which\n</title><script>x</script> {'word ' * 40}"), MODEL)
    page = to_html([turn(begun, *one_text("Yes.")[1:]), turn(*one_text("No."))])
    (title,) = re.findall("<title>(.*?)</title>", page)
    assert title.startswith("Which &lt;/title&gt;&lt;script&gt;x&lt;/script&gt; word word")
    assert title.endswith("…")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_does_no_harm_in_any_place_of_the_page(payload):
    page = to_html([turn(*everywhere(payload)), turn(*started(payload), *one_text(payload)[2:])])
    guard = Guard()
    guard.feed(main(page))
    assert guard.wrong + guard.path == []
    head = page.partition("<main>")[0]
    assert re.findall("<[a-z/!]+", head) == re.findall("<[a-z/!]+", to_html([]).partition("<main>")[0])


def test_secrets_are_blanked_in_the_title_and_everywhere_else():
    secrets.register_secret("my-own-password")
    begun = TurnStarted(user("my-own-password"), MODEL)
    page = to_html([turn(begun, *everywhere("sk-abcdefghijklmnopqrstuvwx my-own-password"))])
    assert "my-own-password" not in page
    assert "sk-abc" not in page
    assert "<title>[redacted]</title>" in page
