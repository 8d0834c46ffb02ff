"""`%agent debug`: what was logged, without secrets."""

import re

from tests.jupyter.harness import BATCH

KEY = "sk-" + "a" * 30
SETUP = """
import logging
@tool
def look(key: str) -> str:
    "Look."
    raise ValueError("refused " + key)
play(*[calls("look", key=KEY), "It said " + KEY] * 2)
"""


def test_the_outlines_of_turns_are_kept_and_more_on_request(kernel):
    assert kernel.run(f"KEY = {KEY!r}{SETUP}").ok
    kernel.run("%%agent\nLook at {KEY}.")
    outline = kernel.run("%agent debug", **BATCH).stream.rpartition("INFO    agentmagic: turn_started ")[2]
    assert outline.startswith("scripted:script: Look at [redacted].")
    assert "INFO    agentmagic: turn_finished answer" in outline
    assert "after … s" in outline
    assert re.search(r"\d s\b|seconds=\d", outline) is None
    assert "seconds=0." in kernel.run("%agent debug").stream
    assert "tool_started" not in outline
    assert "openai, anthropic, google_genai, httpx2, mcp" in kernel.run("%agent debug on").stream
    cell = kernel.run("%%agent\nAgain.")
    kernel.run("logging.getLogger('openai._base_client').debug('sent %s', KEY)")
    detail = kernel.run("%agent debug").stream
    assert "tool_started notebook: look" in detail
    assert "openai._base_client: sent [redacted]" in detail
    assert KEY not in outline + detail
    assert cell.stream == ""  # nothing of it reaches the cells themselves
    off = "The log now keeps how turns begin and end, retries and warnings."
    assert kernel.run("%agent debug off").stream.startswith(off)
    kernel.run("logging.getLogger('openai._base_client').debug('more')")
    assert "more\n" not in kernel.run("%agent debug").stream
    logged = kernel.run("logging.getLogger('agentmagic').error('it failed with %s', KEY)")
    assert logged.stream == "it failed with [redacted]\n"  # errors reach the cell as before


def test_logging_set_up_by_the_user_shows_the_users_records_in_cells_and_ours_if_asked_for(kernel):
    turn = "%%agent --new\nLook."
    kernel.run("import logging\ndef answer(): play('It is **here**.')")
    for level in ("WARNING", "INFO", "DEBUG"):
        kernel.run(f"logging.basicConfig(level=logging.{level}, force=True)\nanswer()")
        assert kernel.run(turn).stream == ""
    assert kernel.run("logging.getLogger('mine').info('read')").stream == "INFO:mine:read\n"
    kernel.run("logging.getLogger('agentmagic').setLevel(logging.INFO)\nanswer()")
    assert "INFO:agentmagic:turn_started" in kernel.run(turn).stream
    kernel.run("logging.getLogger('agentmagic').setLevel(logging.NOTSET)\nlogging.basicConfig(handlers=[], force=True)")
