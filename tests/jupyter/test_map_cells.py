"""Maps in cells: `%%agent --map`, and those that code begins."""

import nbformat
import pytest

from tests.jupyter.conftest import later_outputs
from tests.jupyter.harness import BATCH, CONSOLE
from tests.jupyter.test_first_use import PageOfCell

nbclient = pytest.importorskip("nbclient")
pandas = pytest.importorskip("pandas")

MODEL = """
import threading
import pandas as pd
from agentmagic.errors import BadRequest
from agentmagic import ModelFinished, PartFinished, PartStarted, Text, Usage

class Rows:
    "Answers with its prompt in capitals, at a known price; row 3 fails, and rows from `held` on wait."
    name = "anthropic:claude-haiku-4-5"
    def __init__(self, held=None):
        self.held, self.asked, self.refuses = held, [], True
    async def stream(self, request):
        words = request.messages[-1].text
        self.asked.append(words)
        number = int(words.split()[-1])
        await asyncio.sleep(0)
        if self.held is not None and number >= self.held:
            await asyncio.Event().wait()
        if number == 3 and self.refuses:
            raise BadRequest("<b>three</b> is refused")
        yield PartStarted(0, "text")
        yield PartFinished(0, Text(words.upper()))
        yield ModelFinished(Usage(10, 0, 5, 0, 1), "stop")
    async def aclose(self):
        pass

def rows(number, held=None):
    global agent, reviews, model
    model = Rows(held)
    agent = Session(Agent(model))
    reviews = pd.DataFrame({"review": [f"row {n}" for n in range(number)]}, index=[f"r{n}" for n in range(number)])
"""
ASK = "%%agent -o labels --map reviews --to labels.jsonl\nSay {review}"


@pytest.fixture
def mapping(kernel, tmp_path):
    """Runs cells in a folder of its own, after one that makes the rows."""
    assert kernel.run(f"%cd -q {tmp_path}\n{MODEL}").ok
    yield kernel
    kernel.run("%cd -q -")


def test_a_cell_asks_each_row_binds_the_frame_and_run_again_asks_only_what_failed(mapping):
    mapping.run("rows(12)")
    cell = mapping.run(ASK)
    assert cell.ok, cell.error
    (shown,) = cell.displays
    assert "! 12 rows · 1 failed" in shown["text/plain"]
    assert "1 row: &lt;b&gt;three&lt;/b&gt; is refused" in shown["text/html"]
    assert cell.stream == "labels is bound: DataFrame, 12 rows x 9 columns.\n"
    assert mapping.value("labels.answer['r4'], labels._status['r3']") == "('SAY ROW 4', 'failed')"
    mapping.run("model.asked.clear()")
    assert "11 answered before · 1 failed" in mapping.run(ASK).text
    assert mapping.value("model.asked") == "['Say row 3']"


def test_a_click_on_the_card_asks_the_failed_rows_again_and_binds_the_frame_anew(mapping):
    mapping.pages = mapping.subshell()
    mapping.run("rows(9)")
    page = PageOfCell(mapping, "%%agent -o labels --map reviews\nSay {review}")
    mapping.wait(page.cell, lambda: page.state("actions") == ["ask-rows"])
    (card,) = page.blocks("progress")
    assert (card["state"], card["again"]) == ("partly", "Ask the failed row again")
    assert card["errors"] == ["1 row: <b>three</b> is refused (r3 “row 3”)"]
    mapping.run("before = labels; model.asked.clear(); model.refuses = False")
    page.act(type="ask-rows")
    mapping.wait(page.cell, lambda: page.cell.stream.count("labels is bound") == 2)
    assert mapping.value("model.asked, labels._status['r3'], before._status['r3']") == (
        "(['Say row 3'], 'answered', 'failed')"
    )
    assert "✓ 9 rows · 8 answered before" in page.cell.text


def test_a_click_without_a_variable_shows_the_first_rows_anew_and_a_map_of_code_has_no_such_button(mapping):
    mapping.pages = mapping.subshell()
    mapping.run("rows(5)")
    page = PageOfCell(mapping, "%%agent --map reviews\nSay {review}")
    mapping.wait(page.cell, lambda: page.state("actions") == ["ask-rows"])
    mapping.run("model.refuses = False")
    page.act(type="ask-rows")
    mapping.wait_for_text(page.cell, "SAY ROW 3")
    mapping.run("model.refuses = True")
    page = PageOfCell(mapping, "result = agent.map(reviews, 'Say {review}')")
    mapping.wait(page.cell, lambda: page.state("actions") == [])


def test_without_a_variable_the_first_rows_are_shown_below_the_bar_and_the_result_shows_the_same(mapping):
    mapping.run("rows(12)")
    cell = mapping.run("%%agent --map reviews\nSay {review}")
    bar, table = (data["text/plain"] for data in cell.displays)
    assert "! 12 rows" in bar
    assert table.startswith("index  review  answer")
    assert "r9" in table
    assert "r10" not in table
    assert "The first 10 of 12 rows." in table
    result = mapping.run("agent.last_map")
    (shown,) = result.displays
    assert shown["text/plain"].startswith("! 12 rows · 1 failed")
    assert shown["text/plain"].endswith(table)
    assert "<table>" in shown["text/html"]
    (again,) = mapping.run("result = agent.map(reviews, 'Say {review}')\nresult").displays[1:]
    assert again["text/plain"] == table  # the bar above has the figures


def test_a_row_opens_as_its_turn_in_a_notebook_and_in_a_console(mapping):
    mapping.run("rows(5)\nresult = agent.map(reviews, 'Say {review}')")
    (shown,) = mapping.run("result.run('r2')").displays
    assert "SAY ROW 2" in shown["text/html"]
    assert "\n" not in shown["text/plain"]
    (console,) = mapping.run("result.run('r2')", **CONSOLE).displays
    assert "> Say row 2" in console["text/plain"]
    assert "SAY ROW 2" in console["text/plain"]
    assert "SAY ROW 2" in mapping.run("result", **CONSOLE).displays[0]["text/plain"]


@later_outputs
def test_a_map_that_code_begins_is_shown_in_its_cell_whoever_waits_for_it(mapping):
    mapping.run("rows(4)")
    for code in (
        "result = agent.map(reviews, 'Say {review}')",
        "result = await agent.start_map(reviews, 'Say {review}')",
        "run = agent.start_map(reviews, 'Say {review}')\nwhile not run.done: await asyncio.sleep(0.01)\nrun",
    ):
        for front_end in ({}, BATCH):
            cell = mapping.run(code, **front_end)
            assert cell.ok, cell.error
            assert "! 4 rows · 1 failed" in cell.text
            assert len(cell.displays) == 1
    late = mapping.run("run = agent.start_map(reviews, 'Say {review}')")
    mapping.run("await run")
    mapping.wait_for_text(late, "! 4 rows")
    assert "! 4 rows" in mapping.run("agent.map(reviews, 'Say {review}');", **CONSOLE).stream


def test_a_sample_tells_what_all_rows_may_cost_below_the_bar(mapping):
    mapping.run("rows(40)")
    cell = mapping.run("%%agent -o labels --map reviews --sample 5\nSay {review}")
    assert "✓ 5 rows" in cell.text
    assert "All 40 rows may cost $" in cell.stream
    assert " and take " in cell.stream
    batch = mapping.run("%%agent --map reviews --sample 5\nSay {review}", **BATCH)
    assert "All 40 rows may cost $" in batch.stream
    assert " and take " not in batch.stream
    assert "labels is bound: DataFrame, 5 rows" in cell.stream


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-o labels --to labels.jsonl", "3 of 9 rows are answered. Run the cell again to go on."),
        ("-o labels", "3 of 9 rows are answered. No file keeps them without --to"),
    ],
)
def test_an_interrupt_binds_the_rows_so_far_and_says_how_to_go_on(mapping, line, told):
    mapping.run("rows(9, held=4)")
    cell = mapping.send(f"%%agent {line} --map reviews\nSay {{review}}")
    mapping.wait_for_text(cell, "4 of 9 rows")
    mapping.interrupted(cell)
    assert not cell.ok
    assert cell.error == ""
    assert told in cell.stream
    assert "■ Stopped: " in cell.text
    assert mapping.value("list(labels.answer[:3]), labels._status['r8']") in (
        "(['SAY ROW 0', 'SAY ROW 1', 'SAY ROW 2'], 'in doubt')",
        "(['SAY ROW 0', 'SAY ROW 1', 'SAY ROW 2'], 'not asked')",
    )
    mapping.run("model.held = None; model.asked.clear()")
    again = mapping.run(f"%%agent {line} --map reviews\nSay {{review}}")
    assert "! 9 rows" in again.text
    assert mapping.value("len(model.asked)") == ("6" if "--to" in line else "9")


def test_an_interrupt_of_a_map_in_code_names_where_its_rows_are(mapping):
    mapping.run("rows(9, held=4)")
    cell = mapping.send("result = agent.map(reviews, 'Say {review}')")
    mapping.wait_for_text(cell, "4 of 9 rows")
    mapping.interrupted(cell)
    assert "KeyboardInterrupt" in cell.error
    assert "■ Stopped: " in cell.text
    assert "agent.last_map has the rows until there." in cell.stream
    assert mapping.value("agent.last_map.progress.answered") == "3"


def test_two_maps_one_after_the_other_and_a_frame_that_changes_meanwhile_end_as_they_should(mapping):
    mapping.run("rows(3)")  # none of which is refused, whether it is read before the change or after it
    cell = mapping.run("run = agent.start_map(reviews, 'Say {review}')\nreviews['review'] = 'row 9'\nfirst = await run")
    assert "✓ 3 rows" in cell.text
    second = mapping.run("second = agent.map(['row 1', 'row 2'], 'Say {row}')")
    assert "✓ 2 rows" in second.text
    assert mapping.value("len(first), len(second)") == "(3, 2)"


def test_a_failed_row_ends_the_map_if_it_shall_and_the_cell_goes_on_if_it_may(mapping):
    mapping.run("rows(30)")
    for more, is_ok in (("", False), (" --keep-going", True)):
        line = f"%%agent -o labels --map reviews --concurrency 1 --on-error stop{more}\nSay {{review}}"
        cell = mapping.run(line)
        assert cell.ok == is_ok
        assert "✗ Failed: 4 of 30 rows" in cell.text
        assert "1 row: <b>three</b> is refused (r3 “row 3”)" in cell.text
        assert cell.error == ("" if is_ok else "MapFailed: the map failed; the output says why.")
        assert "is refused" not in cell.stream
        assert mapping.value("labels.answer['r2']") == "'SAY ROW 2'"


def test_a_map_that_can_ask_nothing_leaves_the_variable_as_it_was_and_says_what_to_do(mapping):
    mapping.run("rows(5)\nlabels = 'as it was'\nmodel.name = 'testing:unpriced'")
    cell = mapping.run("%%agent -o labels --map reviews --max-cost 1\nSay {review}")
    assert "No row was asked. What the map costs is unknown, so max_cost cannot be kept." in cell.error
    assert "leave max_cost (--max-cost) out" in cell.error
    assert "labels is bound" not in cell.stream
    assert mapping.value("labels, model.asked") == "('as it was', [])"


def test_a_map_that_ends_early_keeps_the_answers_of_its_file_in_the_variable(mapping):
    mapping.run("rows(12)")
    mapping.run(ASK)
    mapping.run(
        "model.asked.clear()\nreviews = pd.concat([pd.DataFrame({'review': ['row 50']}, index=['new']), reviews])"
    )
    cell = mapping.run(ASK.replace("--to", "--max-cost 0.00001 --to"))
    assert cell.ok, cell.error
    assert "■ Stopped at the budget: 12 of 13 rows · 11 answered before · 1 failed" in cell.text
    assert mapping.value("model.asked, labels.answer['r4'], labels._error['r3'], labels._status['new']") == (
        "([], 'SAY ROW 4', '<b>three</b> is refused', 'not asked')"
    )
    stopping = mapping.run(ASK.replace("--to", "--on-error stop --concurrency 1 --to"))
    assert stopping.error == "MapFailed: the map failed; the output says why."
    assert (
        mapping.value("sorted(set(labels._status)), labels.answer['r11']") == "(['answered', 'failed'], 'SAY ROW 11')"
    )


def test_a_row_that_was_cut_off_is_asked_again_with_a_higher_limit(mapping):
    mapping.run("""
class Cutting(Rows):
    "Answers in capitals; row 1 is cut off at 10 tokens."
    def honours(self, settings):
        return settings.given
    async def stream(self, request):
        async for event in super().stream(request):
            cut = isinstance(event, ModelFinished) and "row 1" in request.messages[-1].text
            yield ModelFinished(event.usage, "length", request.settings.max_output_tokens <= 10) if cut else event
model = Cutting()
agent = Session(Agent(model))
reviews = pd.DataFrame({"review": ["row 0", "row 1", "row 2"]})
""")
    ask = "%%agent -o labels --map reviews --to cut.jsonl --set max_output_tokens={}\nSay {{review}}"
    cell = mapping.run(ask.format(10))
    assert "1 row: The answer was cut off at the limit of output. Raise max_output_tokens (--set" in cell.text
    assert mapping.value("list(labels._status)") == "['answered', 'failed', 'answered']"
    assert "2 answered before" in mapping.run(ask.format(100)).text
    assert mapping.value("list(labels.answer), len(model.asked)") == "(['SAY ROW 0', 'SAY ROW 1', 'SAY ROW 2'], 4)"


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%%agent --map reviws\nSay {review}", "--map reviws is no variable of the notebook. Did you mean reviews?"),
        ("%%agent --map model\nSay {review}", "rows is a Rows. Give a data frame of pandas or polars"),
        ("%%agent --map reviews\nSay {revew}", "{revew} names no column and no variable. Did you mean review?"),
        ("%%agent --map reviews --plan --bg\nSay {review}", "A map asks its rows without --plan, --bg."),
        ("%%agent --to x.jsonl --sample 3\nSay it", "--to, --sample are about a map. Add --map NAME."),
        ("%%agent --map reviews --sample 0\nSay {review}", "Give a whole number of rows, at least 1."),
    ],
)
def test_what_no_map_can_be_made_of_is_said_in_a_sentence_and_no_bar_is_left(mapping, cell, told):
    mapping.run("rows(3)")
    done = mapping.run(cell)
    assert told in done.error
    assert done.displays == []


def test_show_tells_what_the_first_row_would_send_and_asks_nothing(mapping):
    mapping.run("rows(3)\nnote = 'kind words'")
    cell = mapping.run("%%agent --map reviews --show\nSay {review} @note")
    assert "The first row of reviews:" in cell.stream
    assert "Say row 0 @note" in cell.stream
    assert "kind words" in cell.stream
    assert mapping.value("model.asked") == "[]"


def test_what_is_attached_and_the_tools_of_the_notebook_go_with_every_row(mapping):
    mapping.run("""
@tool
def look() -> str:
    "Look."
    return "seen"
note = "kind words"
agent = Session(Agent(ScriptedModel([calls("look"), "one", calls("look"), "two"])))
""")
    assert mapping.run("%%agent -o labels --map two --concurrency 1\nSay {row} @note").ok is False
    mapping.run("two = ['a', 'b']")
    assert mapping.run("%%agent -o labels --map two --concurrency 1\nSay {row} @note").ok
    assert mapping.value("list(labels.answer), list(labels._steps)") == "(['one', 'two'], [2, 2])"
    assert mapping.value("[r.messages[0].parts[-1].text for r in agent.agent.model.requests[::2]]") == (
        "['kind words', 'kind words']"
    )


@pytest.mark.slow
@pytest.mark.parametrize("program", ["nbclient", "papermill"])
def test_a_program_that_runs_notebooks_saves_one_small_output_that_is_the_same_each_time(tmp_path, program):
    pytest.importorskip(program)
    setup = "%load_ext agentmagic\nimport asyncio\nfrom agentmagic import Agent, Session\n" + MODEL + "rows(300)"
    cells = [setup, "%%agent --map reviews --concurrency 4\nSay {review}", "agent.last_map"]
    first, second = (executed(program, tmp_path, cells) for _ in range(2))
    assert "widgets" not in first.metadata
    made = [[[output["data"] for output in cell.outputs] for cell in book.cells[1:]] for book in (first, second)]
    assert [len(outputs) for outputs in made[0]] == [2, 1]
    assert len(str(made[0])) < 13_000
    assert {kind for outputs in made[0] for data in outputs for kind in data} == {"text/html", "text/plain"}
    assert made[0] == made[1]


def executed(program, folder, cells):
    """The notebook of some cells after a program has run it."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    if program == "nbclient":
        return nbclient.NotebookClient(book, resources={"metadata": {"path": str(folder)}}, timeout=60).execute()
    import papermill

    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, folder / "map.ipynb")
    return papermill.execute_notebook(str(folder / "map.ipynb"), str(folder / "out.ipynb"), progress_bar=False)
