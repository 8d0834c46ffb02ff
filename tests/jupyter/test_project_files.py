"""Rules, skills and commands of a cloned repository, in the kernel of its notebook."""

import pytest

from tests.jupyter.harness import BATCH, CONSOLE
from tests.jupyter.test_chat import paged
from tests.projects import Clone

__all__ = ["paged"]


@pytest.fixture
def clone(kernel, own_approvals, tmp_path):
    """A repository that was just cloned, in whose folder the kernel works."""
    made = Clone(tmp_path / "clone")
    made.write("AGENTS.md", "Answer in French.\n")
    made.skill(run="open('ran', 'w')")
    made.write(
        ".agents/commands/review.md", "---\ndescription: Review code\n---\nReview $1 of {secret}.\n\n$ARGUMENTS\n"
    )
    before = kernel.value("os.getcwd()")
    assert kernel.run(
        f"os.chdir({str(made.folder)!r})\nfrom agentmagic.context import rules\nrules._refused_keys.clear()"
    ).ok
    yield made
    assert kernel.run(f"os.chdir({before})").ok
    assert not list(made.root.rglob("ran"))


def sent(kernel, what):
    return kernel.value(f"agent.model().requests[-1].{what}")


def test_a_cell_asks_once_about_all_files_and_uses_them_after_a_yes(kernel, clone):
    kernel.run("play('Bonjour.', 'Encore.')")
    cell, (asked,) = kernel.answer("%%agent\nhello", "y")
    assert "This project has 3 files that tell the model how to work: ../AGENTS.md, " in asked
    assert "AGENTS.md (rules, sent with every request)\n  | Answer in French.\n" in cell.text
    assert "| run.py (16 bytes)" in cell.text
    assert asked.endswith("[y]es, [n]o: ")
    assert "Bonjour." in cell.text
    assert "Answer in French." in sent(kernel, "instructions")
    assert kernel.answer("%%agent\nhello")[1] == []
    clone.write("AGENTS.md", "Answer in German.\n")
    kernel.run("play('Hello.')")
    cell, (asked,) = kernel.answer("%%agent\nhello", "", **CONSOLE)
    assert "AGENTS.md (changed)" in asked
    assert "- Answer in French.\n+ Answer in German.\n" in asked
    assert "German" not in sent(kernel, "instructions")


def test_where_nobody_can_answer_a_cell_goes_without_them_and_names_the_command(kernel, clone):
    kernel.run("play('Hello.', 'Bonjour.')")
    assert "%agent rules approve approves them." in kernel.run("%%agent\nhello", **BATCH).text
    assert sent(kernel, "instructions") == "''"
    assert "AGENTS.md (not approved)" in kernel.run("%agent status").stream
    shown = kernel.run("%agent rules").stream
    assert "| Answer in French.\n" in shown
    assert "Not approved: ../AGENTS.md, ../.agents/skills/stats/SKILL.md, ../.agents/commands/review.md." in shown
    assert "Approved: ../AGENTS.md" in kernel.run("%agent rules approve").stream
    status = kernel.run("%agent status").stream
    assert "rules       ../AGENTS.md (5 tokens)\nskills      stats (7 tokens)\ncommands    /review\n" in status
    kernel.run("%%agent\nhello", **BATCH)
    assert "Answer in French." in sent(kernel, "instructions")
    assert "AGENTS.md" not in kernel.run("agent.agent = Agent(agent.agent.model, rules=False)\n%agent status").stream


def test_a_command_of_the_project_is_asked_with_the_words_of_the_line_and_the_body(kernel, clone):
    kernel.run("%agent rules approve\nplay(*['Fine.'] * 9)\nx, evil, secret = 7, '{1/0}', 'not this'")
    assert kernel.run("%%agent /review a.py don't {evil}\nis {x} right?").ok
    assert sent(kernel, "messages[-1].text") == repr("Review a.py of {secret}.\n\na.py don't {1/0}\nis 7 right?")
    assert kernel.run("%%agent -o kept /review 'b c.py'").ok
    assert sent(kernel, "messages[-1].text") == repr("Review b c.py of {secret}.\n\n'b c.py'")
    assert "Did you mean /review?" in kernel.run("%%agent /reviw a.py\nhello").error
    assert "instructions" in kernel.run("%%agent --instructions '/review is for /tmp' --show\n/home/x is full").stream
    seen = kernel.run("%%agent --show /review a.py\n").stream
    assert "/review" in seen
    assert "AGENTS.md" in seen
    assert "A map asks its rows without /COMMAND" in kernel.run("%%agent --map rows /review a.py\nhello").error
    assert "read_skill" not in kernel.run("%%agent --no-tools --show\nhello").stream
    assert "read_skill" in kernel.run("%agent tools").stream
    assert kernel.complete("%%agent /re") == ["/review"]
    assert kernel.complete("%%agent --to /re") != ["/review"]


def test_a_command_is_completed_and_asked_in_the_panel_and_a_path_stays_a_message(paged, clone):
    paged.run("secret = 1\nopened(*['Fine.'] * 5)\npage.until(lambda: page.state.get('prompts'))")
    assert paged.value("page.state['prompts']") == "[['review', 'Review code']]"
    ask = (
        "page.act('send', text='/review a.py')\npage.until(lambda: any(one['ask'] for one in page.blocks('question')))"
    )
    assert paged.run(ask).ok
    assert paged.value("page.blocks('question')[0]['choices']") == "['Use them', 'Do not use them']"
    yes = "page.act('reply', id=page.blocks('question')[0]['ask'], text='Use them')\npage.turns(1)"
    assert paged.run(yes).ok
    assert sent(paged, "messages[-1].text") == repr("Review a.py of {secret}.\n\na.py")
    paged.run("page.act('send', text='/home/x is full')\npage.turns(2)")
    assert sent(paged, "messages[-1].text") == "'/home/x is full'"
    assert paged.run("page.act('send', text='/reviw a.py')\npage.until(lambda: page.problems)").ok
    assert "Did you mean /review?" in paged.value("page.problems[-1]")
