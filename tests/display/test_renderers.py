"""Each kind of block through each renderer: the HTML of an output, a terminal, a document, the page of a view."""

from dataclasses import replace
from typing import Any, cast, get_args

import pytest

from agentmagic import events
from agentmagic.display import blocks, html, terminal, words
from agentmagic.display.block_json import JsonRenderer
from agentmagic.display.transcript import Snapshot, Transcript
from agentmagic.display.words import footer_details
from agentmagic.export import to_markdown
from agentmagic.jupyter.magics import formatting
from agentmagic.messages import (
    Citation,
    HostedCall,
    HostedResult,
    Media,
    Resource,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    user,
)
from tests.display.logs import MODEL, USAGE, asked_for, carried_out, over, reasoning, started, step_over, text, words_of
from tests.export.turns import turn

CALL = ToolCall("c1", "run_query", {"sql": "SELECT 1", "limit": 3})
QUERY = "run_query (shop) sql: SELECT 1, limit: 3"
CARD, GIVEN = "run_query shop sql: SELECT 1, limit: 3", "Arguments sql SELECT 1 limit 3"
CODE = ToolCall("c1", "run_python", {"code": "if total:\n    print('<x>')\n"})
PROGRAM = ToolCall("c1", "run_python", {"code": "n = 3  # a comment\nf(n)"})
RETURNED = ToolResult("c1", "run_python", (Text("Printed:\n1"), Text("<4>")))
INNER, LOOKED = ToolCall("c2", "look", {}), ToolResult("c2", "look", (Text("3"),))
PLAN = (
    events.Task("t1", "find", {"word": "too"}, "the number"),
    events.Task("t2", "add", {"b": "$t1"}, "the sum", ("t1",)),
)
RETRIED = (
    events.Planned(PLAN),
    events.TaskStarted("t1", "call_1", {"word": "too"}),
    events.TaskJudged("t1", success=False, retry=True, reason="It is spelt two.", parameters={"word": "two"}),
    events.TaskStarted("t1", "call_2", {"word": "two"}, 2),
    events.TaskFinished("t1", "done", "2"),
    events.TaskStarted("t2", "call_3", {"b": 2}),
)
CHANGE = events.CellProposed("p", "change", "code", "x = 3\ny = 2", "Is <better>.", "one", 1, "x = 1\ny = 2", "staged")
REMOVAL = events.CellProposed("p", "remove", "code", "", "Is old.", "two", 2, "y = 2")
FRAME = "   name  total\n0  Lamp      1\n1  Desk      2"
TABLE = "| city | sold |\n| --- | --- |\n| Oslo | 3 |"
VALUES = (
    events.PromptValue("{sales}", "table", "DataFrame, 1 row", 20, TABLE),
    events.PromptValue("@fig", "image", "Figure as an image", 1_000),
    events.PromptValue("@n.txt", "file", "text/plain, 3 bytes", 1, "<b>"),
)
SHOWN = (
    "{sales}: DataFrame, 1 row (20 tokens) · @fig: Figure as an image (1,000 tokens) · "
    "@n.txt: text/plain, 3 bytes (1 token)"
)
AGAIN = (
    "find Parameters word two Attempts "
    "Attempt 1: not what was needed (It is spelt two). Tried again with other parameters."
)
TASK = {"id": "t1", "title": "the number", "tool": "find", "state": "pending", "parts": []}
COPY = "Copy it if you want it: it could not be put into the notebook from here."
RECORDS = '{"value": [{"city": "Oslo", "people": 709}]}'
FIG = "[image/png fig, 5 bytes]"
PNG = Media("image/png", b"1234", "plot")
COLUMNS = {"numeric": [False, True], "note": ""}
FIGURES = "1 step · 2 requests · 1,200 tokens in (200 cached), 34 out"
PAGE, OTHER = "https://docs.python.org/3.15/", "https://x.org/"
PAGES = f"What's new {PAGE} It has a JIT. {OTHER} {OTHER}"
CITED = Text(
    "It has a **JIT**. Yes.",
    citations=(Citation(0, 14, PAGE, "What's new", "a JIT"), Citation(18, 21, OTHER)),
)
SEARCH = HostedCall("h1", "web_search", {"query": "python 3.15"}, "anthropic")
FOUND = HostedResult("h1", "web_search", (Resource(PAGE, "What's new", text="It has a JIT."), Resource(OTHER)))
WEB = events.ApprovalAsked(
    "a1", ToolCall("w1", "web_search", {}), "notebook", effects=("Lets the provider search.",), fixed=True, hosted=True
)
FOR_MODEL = Text("The user …", audience="assistant")
CHANGED = ToolCall("c1", "run_query", {"sql": "SELECT 2", "limit": 3})
LEFT_OUT = {
    "where": {"type": "string", "default": "here", "description": "The place."},
    "deep": {"type": "boolean", "default": False},
    "odd": "no schema",
}
CHANGES = (
    events.VariableChange("sales", "made", after="DataFrame (3, 2)"),
    events.VariableChange("pd", "made", after="module pandas"),
    events.VariableChange("total", "changed", "int", "float"),
    events.VariableChange("old", "removed", "str"),
)
RECEIPT = "Changed in the notebook:\n+ sales: DataFrame (3, 2)\n~ total: int → float\n- old: str"
VALUED = events.RunResult(RECORDS, (), (), 1, False, "answer", USAGE, value=[1], wrapped_in="value")

RUNNING = events.MapProgress(
    *("m", 100, 28, 2, 4, 8, Usage(300, 0, 60, 0, 30, cost=0.03), 0.1),
    *(42.0, 9.0, 100.0, (("<b>refused</b>", 2),)),
)
MAPPED = "4 answered before · 2 failed · 8 under way · 42 rows a minute · $0.0300 of about $0.1000 · about 2 min left"
FAILED, NAMED = (("<b>refused</b>", 3),), ((("r1", "Nice <i>"), ("r2", "")),)
NAMES = "r1 “Nice <i>”, r2, 1 more"
LOST = "No file keeps the answers (--to FILE, to= in code): run again, this asks all rows again."
KEPT = "The answers are kept in l.jsonl. Run this again to go on with the rest."


def framed(rows):
    """The HTML of a frame, as pandas writes it."""
    cells = "".join(f"<tr><td>{row}</td></tr>" for row in range(rows))
    return f'<table class="dataframe"><thead><tr><th>a</th></tr></thead><tbody>{cells}</tbody></table>'


def ended(*content, status="ok", structured=None, traceback=""):
    result = ToolResult("c1", "run_query", content, status, structured)
    return [*asked_for(CALL), *carried_out(CALL, result, traceback=traceback)]


ROWS = {
    "a prompt with a frame and a variable": (
        blocks.PromptBlock,
        [events.TurnStarted(user(f"What is\n{FRAME}", Resource("variable:sales", "sales", "", "a  b\n1  2")), MODEL)],
        "What is name total 0 Lamp 1 1 Desk 2 sales a b 1 2",
        "> What is\n>    name  total\n> 0  Lamp      1\n> 1  Desk      2",
        "> 1  Desk      2\n>\n> [resource variable:sales]\n> a  b\n> 1  2\n",
        {"turn": 1, "stretches": [("What is\n", False), (FRAME, True)], "attached": [("sales", "a  b\n1  2")]},
    ),
    "the values of a prompt": (
        blocks.ValuesBlock,
        [events.TurnStarted(user("Look.", Media("image/png", b"drawn", "fig")), MODEL, VALUES)],
        f"{SHOWN} {{sales}} city sold Oslo 3 @fig @n.txt <b>",
        SHOWN.replace(" · ", "\n"),
        (
            f"> Look.\n>\n> {FIG}\n\n<details>\n<summary>{SHOWN}</summary>\n\n"
            f"{{sales}}:\n\n```\n{TABLE}\n```\n\n@fig:\n\n```\n{FIG}\n```"
        ),
        {"line": SHOWN},
    ),
    "an answer": (
        blocks.TextBlock,
        text("It is **21**."),
        "It is 21.",
        "It is **21**.",
        "\n\nIt is **21**.\n",
        {"open": False},
    ),
    "an answer that is a value": (
        blocks.TextBlock,
        [*text(RECORDS), events.TurnFinished(VALUED)],
        "city people Oslo 709",
        "city  people\nOslo     709",
        f"\n\n{RECORDS}\n\n",
        {"form": {"form": "table", "columns": ["city", "people"], "rows": [["Oslo", "709"]], **COLUMNS}},
    ),
    "a value with its sources": (
        blocks.TextBlock,
        [events.PartFinished(0, Text(RECORDS, citations=(Citation(0, 5, PAGE),))), events.TurnFinished(VALUED)],
        f"city people Oslo 709 Sources {PAGE} {PAGE}",
        f"city  people\nOslo     709\n\nSources:\n[1] {PAGE}",
        f"**Sources**\n\n- \\[1\\] [{PAGE}]({PAGE})\n",
        {"form": {"form": "table", "columns": ["city", "people"], "rows": [["Oslo", "709"]], **COLUMNS}},
    ),
    "an answer with its sources": (
        blocks.TextBlock,
        [events.PartFinished(0, CITED)],
        f"It has a JIT. 1 Yes. 2 Sources What's new {PAGE} Quoted a JIT {OTHER} {OTHER}",
        f"It has a **JIT**. [1] Yes. [2]\n\nSources:\n[1] What's new\n    {PAGE}\n[2] {OTHER}",
        (
            f"\n\nIt has a **JIT**. [[1]]({PAGE}) Yes. [[2]]({OTHER})\n\n**Sources**\n\n"
            f"- \\[1\\] [What's new]({PAGE})\n\n  > a JIT\n- \\[2\\] [{OTHER}]({OTHER})\n"
        ),
        {
            "marks": [(17, "", 1), (22, "", 2)],
            "sources": [
                {"number": 1, "title": "What's new", "address": PAGE, "link": PAGE, "quotes": ["a JIT"]},
                {"number": 2, "title": OTHER, "address": OTHER, "link": OTHER, "quotes": []},
            ],
        },
    ),
    "a search of the provider": (
        blocks.ToolCard,
        [
            events.PartStarted(0, "hosted_call", "web_search"),
            events.PartFinished(0, SEARCH),
            events.PartFinished(1, FOUND),
        ],
        f"✓ Searched the web anthropic python 3.15 2 pages Arguments query python 3.15 Result {PAGES}",
        f"✓ Searched the web (anthropic) python 3.15 [2 pages]\n  What's new\n    {PAGE}\n  {OTHER}",
        f"```\n\n- [What's new]({PAGE})\n- [{OTHER}]({OTHER})\n\n</details>",
        {
            "name": "Searched the web",
            "word": "2 pages",
            "short": "python 3.15",
            "ask": "",
            "state": "done",
            "result": {
                "error": False,
                "below": [],
                "forms": [
                    {
                        "form": "pages",
                        "pages": [("What's new", PAGE, PAGE, "It has a JIT."), (OTHER, OTHER, OTHER, "")],
                        "note": "",
                    }
                ],
            },
        },
    ),
    "a search under way": (
        blocks.ToolCard,
        [events.PartFinished(0, SEARCH)],
        "◐ Searching the web anthropic python 3.15 running Arguments query python 3.15",
        "◐ Searching the web (anthropic) python 3.15 [running]",
        "<summary>◐ <code>Searching the web</code> (anthropic) python 3.15 [running]</summary>",
        {"name": "Searching the web", "word": "running", "state": "running"},
    ),
    "a search of a server without a name": (
        blocks.ToolCard,
        [events.PartFinished(0, replace(SEARCH, host="")), events.PartFinished(1, replace(FOUND, content=()))],
        "✓ Searched the web python 3.15 Arguments query python 3.15 Result nothing",
        "✓ Searched the web python 3.15",
        "<code>Searched the web</code> python 3.15</summary>",
        {"name": "Searched the web", "word": "", "state": "done"},
    ),
    "a search whose words are still written": (
        blocks.ToolCard,
        [events.PartStarted(0, "hosted_call", "web_search"), events.PartDelta(0, '{"query": "py')],
        '◌ Searching the web {"query": "py Arguments {"query": "py',
        '◌ Searching the web {"query": "py',
        "",
        {"name": "Searching the web", "word": "", "state": "pending"},
    ),
    "a page that could not be read": (
        blocks.ToolCard,
        [
            events.PartFinished(0, HostedCall("h1", "web_fetch", {"url": PAGE}, "gemini")),
            events.PartFinished(1, HostedResult("h1", "web_fetch", (Text("No such page."),), "error")),
        ],
        f"✗ Reading a page gemini {PAGE} failed: No such page. Arguments url {PAGE} Error No such page.",
        f"✗ Reading a page (gemini) {PAGE} [failed]\n  No such page.",
        "Error:\n\n```\nNo such page.\n```",
        {"name": "Reading a page", "word": "failed: No such page.", "state": "failed"},
    ),
    "a program that the provider has run": (
        blocks.ToolCard,
        [
            events.PartFinished(0, HostedCall("h1", "code_execution", {"code": "print('a', 1 + 1, 'b')"}, "gemini")),
            events.PartFinished(1, HostedResult("h1", "code_execution", (Text("a 2 b"),))),
        ],
        "✓ Ran code gemini print('a', 1 + 1, 'b') Arguments code print('a', 1 + 1, 'b') Result a 2 b",
        "✓ Ran code (gemini) print('a', 1 + 1, 'b')\n  a 2 b",
        "```\na 2 b\n```",
        {"name": "Ran code", "arguments": [("code", "print('a', 1 + 1, 'b')")]},
    ),
    "a call of the provider without words of ours": (
        blocks.ToolCard,
        [
            events.PartFinished(0, HostedCall("h1", "file_search", {"queries": ["a", "b"]}, "openai")),
            events.PartFinished(1, HostedResult("h1", "file_search")),
        ],
        '✓ file_search openai a, b Arguments queries ["a", "b"] Result nothing',
        "✓ file_search (openai) a, b",
        "<code>file_search</code> (openai) a, b",
        {"name": "file_search", "titled": False},
    ),
    "a question for the web": (
        blocks.ToolCard,
        [WEB],
        "‖ Search the web waits for you What it does Lets the provider search.",
        "‖ Search the web [waits for you]\n\n  Lets the provider search.",
        "Lets the provider search.",
        {"approve": "Allow in this session", "edit": [], "name": "Search the web", "server": ""},
    ),
    "a yes for the web": (
        blocks.ToolCard,
        [WEB, events.ApprovalGiven("a1", approved=True)],
        "✓ Search the web allowed What it does Lets the provider search.",
        "✓ Search the web [allowed]",
        "<code>Search the web</code> [allowed]",
        {"word": "allowed", "state": "done"},
    ),
    "reasoning": (
        blocks.ReasoningBlock,
        reasoning("**Width** times height."),
        "Thought Width times height.",
        "Thought\n  **Width** times height.",
        "<details>\n<summary>Thought</summary>\n\n**Width** times height.\n\n</details>\n",
        {"open": False},
    ),
    "reasoning without words": (blocks.ReasoningBlock, reasoning(""), "", "", "> Hello\n", {"open": False}),
    "a call that is written": (
        blocks.ToolCard,
        [events.PartStarted(0, "tool_call", "run_query"), events.PartDelta(0, '{"sql": "SEL')],
        '◌ run_query {"sql": "SEL Arguments {"sql": "SEL',
        '◌ run_query {"sql": "SEL',
        "",
        {"state": "pending", "short": '{"sql": "SEL', "arguments": []},
    ),
    "a call that waits": (
        blocks.ToolCard,
        [*asked_for(CODE), events.ApprovalAsked("a1", CODE, "notebook", effects=("Reads: total",))],
        "‖ run_python notebook waits for you Arguments code if total: print('<x>') What it does Reads: total",
        "‖ run_python (notebook) [waits for you]\n  code  if total:\n            print('<x>')\n\n  Reads: total",
        (
            "<summary>‖ <code>run_python</code> (notebook) [waits for you]</summary>\n\nArguments:\n\n```json\n{\n"
            '  "code": "if total:\\n    print(\'<x>\')\\n"\n}\n```\n\nWhat it does:\n\n```\nReads: total\n```'
        ),
        {"ask": "a1", "short": "", "edit": [("code", CODE.arguments["code"], True)], "effects": ["Reads: total"]},
    ),
    "a call that runs": (
        blocks.ToolCard,
        [*asked_for(CALL), events.ToolStarted(CALL, "shop"), events.ToolProgress("c1", 3, 5, "fitting")],
        f"◐ {CARD} running 3 of 5 fitting {GIVEN}",
        f"◐ {QUERY} [running · 3 of 5 fitting]",
        "<summary>◐ <code>run_query</code> (shop) sql: SELECT 1, limit: 3 [running]</summary>",
        {"state": "running", "progress": {"text": "3 of 5 fitting", "lines": "", "share": 0.6}, "edit": []},
    ),
    "a result that is a table": (
        blocks.ToolCard,
        ended(Text('{"result": [{"name": "Lamp", "total": 12480}, {"name": "Desk"}]}')),
        f"✓ {CARD} 31 ms {GIVEN} Result name total Lamp 12480 Desk",
        f"✓ {QUERY} [31 ms]\n  name  total\n  Lamp  12480\n  Desk",
        'Result:\n\n```\n{"result": [{"name": "Lamp", "total": 12480}, {"name": "Desk"}]}\n```\n\n</details>',
        {"time": "31 ms", "arguments": [("sql", "SELECT 1"), ("limit", "3")], "more": None},
    ),
    "a result without content": (
        blocks.ToolCard,
        ended(),
        f"✓ {CARD} 31 ms {GIVEN} Result nothing",
        f"✓ {QUERY} [31 ms]",
        '```json\n{\n  "sql": "SELECT 1",\n  "limit": 3\n}\n```\n\n</details>',
        {"result": {"error": False, "forms": [], "below": []}},
    ),
    "a result that is a structured value": (
        blocks.ToolCard,
        ended(structured={"slope": 3.2}),
        f'✓ {CARD} 31 ms {GIVEN} Result {{"slope": 3.2}}',
        f'✓ {QUERY} [31 ms]\n  {{"slope": 3.2}}',
        'Result:\n\n```json\n{\n  "slope": 3.2\n}\n```',
        {"result": {"error": False, "forms": [{"form": "text", "text": '{"slope": 3.2}', "note": ""}], "below": []}},
    ),
    "a result with pictures and a resource": (
        blocks.ToolCard,
        ended(PNG, Media("image/svg+xml", b"<svg>"), Resource("a.txt", text="in")),
        f"✓ {CARD} 31 ms {GIVEN} Result [image/svg+xml, 5 bytes] [resource a.txt] in",
        f"✓ {QUERY} [31 ms]\n  [image/png plot, 4 bytes]\n  [image/svg+xml, 5 bytes]\n  [resource a.txt]\n  in",
        "```\n[image/png plot, 4 bytes]\n[image/svg+xml, 5 bytes]\n[resource a.txt]\nin\n```",
        {"state": "done"},
    ),
    "a call that failed": (
        blocks.ToolCard,
        ended(Text("ValueError: <no>"), status="error", traceback="File <a>"),
        f"✗ {CARD} failed: ValueError: <no> 31 ms {GIVEN} Error ValueError: <no> Traceback File <a>",
        f"✗ {QUERY} [failed · 31 ms]\n  ValueError: <no>\n  %tb shows where it was raised.",
        "sql: SELECT 1, limit: 3 [failed: ValueError: &lt;no&gt; · 31 ms]</summary>",
        {"state": "failed", "word": "failed: ValueError: <no>", "traceback": "File <a>"},
    ),
    "a program with a value": (
        blocks.ToolCard,
        [
            *asked_for(PROGRAM),
            *carried_out(PROGRAM, ToolResult("c1", "run_python", (Text("Printed:\n1"), Text("<4>")))),
        ],
        "✓ run_python shop f(n) → <4> 31 ms Arguments code n = 3 # a comment f(n) Result Printed: 1 <4>",
        "✓ run_python (shop) f(n) [31 ms]\n  Printed:\n  1\n  <4>",
        "<summary>✓ <code>run_python</code> (shop) f(n) → &lt;4&gt; [31 ms]</summary>",
        {"short": "f(n)", "value": "→ <4>", "word": ""},
    ),
    "a call that was denied": (
        blocks.ToolCard,
        [
            *asked_for(CALL),
            events.ApprovalAsked("a1", CALL, "shop"),
            events.ApprovalGiven("a1", approved=False, reason="not now"),
            events.ToolFinished(ToolResult("c1", "run_query", (FOR_MODEL,), "denied")),
        ],
        f"⊘ {CARD} denied: not now {GIVEN} Reason not now",
        f"⊘ {QUERY} [denied: not now]",
        "limit: 3 [denied: not now]</summary>",
        {"state": "denied", "reason": "not now", "ask": "", "result": None},
    ),
    "a call that was denied at length": (
        blocks.ToolCard,
        [
            *asked_for(CALL),
            events.ApprovalAsked("a1", CALL, "shop"),
            events.ApprovalGiven("a1", approved=False, reason="too dear, " * 12),
            events.ToolFinished(ToolResult("c1", "run_query", (FOR_MODEL,), "denied")),
        ],
        f"⊘ {CARD} denied: {'too dear, ' * 9}too dear,… {GIVEN} Reason {'too dear, ' * 12}".rstrip(),
        f"⊘ {QUERY} [denied: {'too dear, ' * 9}too dear,…]\n  {'too dear, ' * 12}".rstrip(),
        f"\n\n{'too dear, ' * 12}".rstrip(),
        {"reason": "too dear, " * 12},
    ),
    "a call whose arguments the user changed": (
        blocks.ToolCard,
        [
            *asked_for(CALL),
            events.ApprovalAsked("a1", CALL, "shop", optional={"deep": {"type": "boolean", "default": False}}),
            events.ApprovalGiven("a1", approved=True, arguments={"sql": "SELECT 2", "limit": 3}),
            *carried_out(CHANGED, ToolResult("c1", "run_query", (FOR_MODEL, Text("3 rows")))),
        ],
        (
            "✓ run_query shop sql: SELECT 2, limit: 3 edited 31 ms Arguments sql SELECT 2 limit 3 "
            "Edited by you - sql SELECT 1 + sql SELECT 2 Result 3 rows"
        ),
        (
            "✓ run_query (shop) sql: SELECT 2, limit: 3 [edited · 31 ms]\n"
            "  Edited by you:\n  - sql    SELECT 1\n  + sql    SELECT 2\n  3 rows"
        ),
        "Edited by the user:\n\n```diff\n- sql    SELECT 1\n+ sql    SELECT 2\n```\n\nResult:\n\n```\n3 rows\n```",
        {"edits": "- sql    SELECT 1\n+ sql    SELECT 2", "arguments": [("sql", "SELECT 2"), ("limit", "3")]},
    ),
    "a call that waits and left arguments out": (
        blocks.ToolCard,
        [*asked_for(INNER), events.ApprovalAsked("a1", INNER, "shop", optional=LEFT_OUT)],
        "‖ look shop waits for you",
        "‖ look (shop) [waits for you]\n\n",
        "<summary>‖ <code>look</code> (shop) [waits for you]</summary>",
        {
            "edit": [],
            "optional": [
                ("where", "here", True, "The place."),
                ("deep", "false", False, ""),
                ("odd", "", False, ""),
            ],
        },
    ),
    "a frame": (
        blocks.ToolCard,
        [*asked_for(CALL), *carried_out(CALL, ToolResult("c1", "run_query", (Text("a\n0"),)), rich=(framed(3),))],
        f"✓ {CARD} 31 ms {GIVEN} a 0 1 2",
        f"✓ {QUERY} [31 ms]\n  a\n  0",
        "Result:\n\n```\na\n0\n```",
        {"state": "done"},
    ),
    "a long frame": (
        blocks.ToolCard,
        [*asked_for(CALL), *carried_out(CALL, ToolResult("c1", "run_query", (Text("a\n0"),)), rich=(framed(8),))],
        (
            f"✓ {CARD} 31 ms {GIVEN} Result a 0 1 2 3 4 5 6 7 "
            "a 0 1 2 3 4 The first 5 of 8 rows; all 8 rows are in the card."
        ),
        f"✓ {QUERY} [31 ms]\n  a\n  0",
        "Result:\n\n```\na\n0\n```",
        {"state": "done"},
    ),
    "a call that was interrupted": (
        blocks.ToolCard,
        [*asked_for(CALL), *over(stop="cancelled")],
        f"■ run_query sql: SELECT 1, limit: 3 interrupted {GIVEN}",
        "■ run_query sql: SELECT 1, limit: 3 [interrupted]",
        "<summary>■ <code>run_query</code> sql: SELECT 1, limit: 3 [interrupted]</summary>",
        {"state": "interrupted"},
    ),
    "a call of a tool": (
        blocks.ToolCard,
        [events.ToolStarted(CODE, "notebook"), events.InnerCall("c1", INNER), *carried_out(INNER, LOOKED)],
        "✓ look shop 31 ms Result 3",
        "  ↳ ✓ look (shop) [31 ms]\n  3",
        "<summary>✓ <code>↳ look</code> (shop) [31 ms]</summary>\n\nResult:\n\n```\n3\n```\n\n</details>",
        {"inner": True, "short": "", "arguments": []},
    ),
    "a plan under way": (
        blocks.ChecklistBlock,
        RETRIED,
        f"Plan: 1 of 2 done, 1 running ✓ the number attempt 2 {AGAIN} Summary 2 ◐ the sum running add Parameters b 2",
        "Plan: 1 of 2 done, 1 running\n  ✓ t1 the number [attempt 2]: 2\n  ◐ t2 the sum [running]",
        "**Plan: 1 of 2 done, 1 running**\n\n- ✓ the number: attempt 2: 2\n\n- ◐ the sum: running\n",
        {"heading": "Plan: 1 of 2 done, 1 running"},
    ),
    "a plan that was cut off": (
        blocks.ChecklistBlock,
        [events.Planned(PLAN[:1]), events.TaskStarted("t1", "call_1", {}), *over()],
        "Plan: 0 of 1 done, interrupted ◌ the number find",
        "Plan: 0 of 1 done, interrupted\n  ◌ t1 the number",
        "**Plan: 0 of 1 done, interrupted**\n\n- ◌ the number\n",
        {
            "heading": "Plan: 0 of 1 done, interrupted",
            "tasks": [TASK | {"word": ""}],
        },
    ),
    "a question with its answer": (
        blocks.QuestionBlock,
        [events.QuestionAsked("q", "Which folder?", "data"), events.QuestionAnswered("q", "here")],
        "Question: Which folder? Answer: here",
        "? Which folder?\n  here",
        "> **Question:** Which folder?\n\n> **Reply:** here\n",
        {"answer": "here", "ask": "", "suggested": ""},
    ),
    "a plan that was changed": (
        blocks.QuestionBlock,
        [events.QuestionAsked("q", "Run it?", "t1 look", plan="new"), events.QuestionAnswered("q", "t1 find")],
        "Question: Run it? Answer: Run as changed.",
        "? Run it?\n  Run as changed.",
        "> **Question:** Run it?\n\n> **Reply:** Run as changed.\n",
        {"answer": "Run as changed.", "plan": "new"},
    ),
    "a plan that was run as it is": (
        blocks.QuestionBlock,
        [events.QuestionAsked("q", "Run it?", "t1 look", plan="new"), events.QuestionAnswered("q", "t1 look")],
        "Question: Run it? Answer: Run as it is.",
        "? Run it?\n  Run as it is.",
        "> **Question:** Run it?\n\n> **Reply:** Run as it is.\n",
        {"answer": "Run as it is."},
    ),
    "a pause before a request": (
        blocks.QuestionBlock,
        [events.QuestionAsked("q", "Request 1", step=True)],
        "Paused: Request 1",
        "? Request 1",
        "> **Question:** Request 1\n",
        {"answer": None, "ask": "q", "suggested": "", "step": True},
    ),
    "a proposed cell": (
        blocks.ProposalBlock,
        [events.CellProposed("p", "insert", "markdown", "# Title", "Needs one.")],
        f"Proposed Markdown cell Needs one. {COPY} # Title",
        "Proposed Markdown cell: Needs one.\n  # Title",
        "**Proposed Markdown cell**: Needs one.\n\n```markdown\n# Title\n```\n",
        {"state": "", "folded": False, "language": "markdown", "copy": "# Title"},
    ),
    "a proposed change that was kept with changes": (
        blocks.ProposalBlock,
        [CHANGE, events.ProposalSettled("p", "changed", "x = 4\ny = 2", ran=True)],
        "Proposed change of cell 1 kept with changes, and run Is <better>. -x = 1 +x = 4 y = 2",
        "Proposed change of cell 1 [kept with changes, and run]: Is <better>.\n  -x = 1\n  +x = 4\n   y = 2",
        r"**Proposed change of cell 1** (kept with changes, and run): Is \<better\>." + "\n\n```diff\n-x = 1\n+x = 4\n",
        {"state": "kept with changes, and run", "folded": True, "hint": "", "code": "-x = 1\n+x = 4\n y = 2"},
    ),
    "a proposed removal that was kept": (
        blocks.ProposalBlock,
        [REMOVAL, events.ProposalSettled("p", "kept")],
        "Proposed removal of cell 2 removed Is old. y = 2",
        "Proposed removal of cell 2 [removed]: Is old.\n  y = 2",
        "**Proposed removal of cell 2** (removed): Is old.\n\n```python\ny = 2\n```\n",
        {"state": "removed", "copy": ""},
    ),
    "a note": (
        blocks.NoticeBlock,
        [events.Notice("info", "Look *here*.")],
        *["Look *here*."] * 2,
        r"> **Note:** Look \*here\*.",
        {"level": "info"},
    ),
    "what a turn changed": (
        blocks.NoticeBlock,
        [events.VariablesChanged(CHANGES, ("a.csv",))],
        (
            "Changed in the notebook: + sales: DataFrame (3, 2) ~ total: int → float - old: str "
            "Files opened to write: a.csv."
        ),
        *[f"{RECEIPT}\nFiles opened to write: a.csv."],
        "> **Note:** Changed in the notebook:\\\n> + sales: DataFrame (3, 2)\\\n> ",
        {"text": f"{RECEIPT}\nFiles opened to write: a.csv."},
    ),
    "a retry": (
        blocks.RetryBlock,
        [events.StepRetried(1, 1, 2.0, "Rate limited.")],
        *["Rate limited, trying again in 2 s (2 of 5)"] * 2,
        "> **Retry:** Rate limited, trying again in 2 s (2 of 5)\n",
        {"text": "Rate limited, trying again in 2 s (2 of 5)"},
    ),
    "a retry that was answered": (
        blocks.RetryBlock,
        [events.StepRetried(1, 1, 2.0, "Rate limited."), *step_over(), *over("")],  # an empty answer is an answer
        *["Rate limited. Tried again after 2 s (2 of 5)"] * 2,
        "> **Retry:** Rate limited. Tried again after 2 s (2 of 5)\n",
        {"text": "Rate limited. Tried again after 2 s (2 of 5)"},
    ),
    "a retry in a turn that was stopped": (
        blocks.RetryBlock,
        [*started(), events.StepRetried(1, 1, 2.0, "Rate limited."), *over("", "cancelled")],
        *["Rate limited. The turn ended before the next try (2 of 5)"] * 2,
        "> **Retry:** Rate limited. The turn ended before the next try (2 of 5)\n",
        {"text": "Rate limited. The turn ended before the next try (2 of 5)"},
    ),
    "a map under way": (
        blocks.ProgressBlock,
        [RUNNING],
        f"◐ 30 of 100 rows {MAPPED} 2 rows: <b>refused</b> The map was under way when this was shown.",
        f"◐ 30 of 100 rows · {MAPPED}\n  2 rows: <b>refused</b>",
        "> 30 of 100 rows · 4 answered before · 2 failed · 8 under way",
        {"state": "running", "heading": "30 of 100 rows", "shares": (0.28, 0.02), "errors": ["2 rows: <b>refused</b>"]},
    ),
    "a map with failed rows": (
        blocks.ProgressBlock,
        [replace(RUNNING, total=30, ended="done", running=0, kept=0, errors=FAILED, examples=NAMED)],
        f"! 30 rows 2 failed · $0.0300 · 9.0 s 3 rows: <b>refused</b> ({NAMES}) {LOST}",
        f"! 30 rows · 2 failed · $0.0300 · 9.0 s\n  3 rows: <b>refused</b> ({NAMES})\n  {LOST}",
        "> 3 rows: \\<b>refused\\</b> (r1 “Nice <i>”, r2, 1 more)",
        {
            "state": "partly",
            "errors": [f"3 rows: <b>refused</b> ({NAMES})"],
            "again": "Ask the 2 failed rows again",
            "advice": LOST,
        },
    ),
    "a map of which all rows failed": (
        blocks.ProgressBlock,
        [replace(RUNNING, total=2, answered=0, ended="done", running=0, kept=0, errors=(), file="l.jsonl")],
        f"✗ 2 rows 2 failed · $0.0300 · 9.0 s {KEPT}",
        f"✗ 2 rows · 2 failed · $0.0300 · 9.0 s\n  {KEPT}",
        "> 2 rows · 2 failed",
        {"state": "failed", "advice": KEPT},
    ),
    "a map that was stopped": (
        blocks.ProgressBlock,
        [RUNNING, replace(RUNNING, ended="stopped", running=0, errors=(), file="l.jsonl", in_doubt=1)],
        f"■ Stopped: 30 of 100 rows 4 answered before · 2 failed · 1 in doubt · $0.0300 · 9.0 s {KEPT}",
        f"■ Stopped: 30 of 100 rows · 4 answered before · 2 failed · 1 in doubt · $0.0300 · 9.0 s\n  {KEPT}",
        "> Stopped: 30 of 100 rows",
        {"state": "interrupted", "errors": [], "notices": [KEPT]},
    ),
    "the figures of a turn": (
        blocks.FooterBlock,
        over("Yes."),
        *[f"{MODEL} · 7.3 s · $0.0019"] * 2,
        rf"*{MODEL} · 7.3 s · \$0.0019 · {FIGURES}*",
        {"figures": [MODEL, "7.3 s", "$0.0019"], "details": FIGURES, "stop": "answer", "unsent": None},
    ),
}


def test_tokens_that_were_written_to_a_cache_are_told_beside_those_read_from_it():
    for usage, told in ((Usage(9, 0, 1, 0, 1, 0, 5), "5 written to the cache"), (Usage(9, 2, 1), "2 cached")):
        assert f"9 tokens in ({told}), 1 out" in footer_details(blocks.FooterBlock("m", usage), times=False)
    both = Usage(1_200, 200, 34, 0, 2, 0.0, 1_000)
    assert formatting.usage(both).startswith(
        "2 requests, 1,200 tokens in (200 cached, 1,000 written to the cache), 34 out"
    )


@pytest.mark.parametrize(("number", "told"), [(0, ""), (1, "1 search · "), (2, "2 searches · ")])
def test_searches_are_told_beside_the_tokens_if_there_were_any(number, told):
    usage = Usage(9, 0, 1, searches=number)
    assert footer_details(blocks.FooterBlock("m", usage), times=False) == f"{told}9 tokens in, 1 out"
    begin = f"1 request, {told.replace(' · ', ', ')}9 tokens in"
    assert formatting.usage(replace(usage, requests=1)).startswith(begin)


def test_each_renderer_shows_the_address_of_a_server_whose_name_could_be_mistaken():
    log = [
        *started(),
        *carried_out(CALL, ToolResult("c1", "run_query", (Text("1"),)), server="agentmagic tools"),
        *over(),
    ]
    shown = "agentmagic tools (an MCP server)"
    (card,) = (block for block in Transcript(log).blocks if isinstance(block, blocks.ToolCard))
    assert JsonRenderer().card(card)["server"] == shown
    assert shown in words_of(html.render(Transcript(log)))
    assert shown in terminal.render(Transcript(log))
    assert shown in to_markdown([turn(*log)])


def test_every_kind_of_block_and_every_state_of_a_call_has_a_row():
    kinds = {kind for kind in vars(blocks).values() if isinstance(kind, type) and issubclass(kind, blocks.Block)}
    assert {kind for kind, *_ in ROWS.values()} == kinds - {blocks.Block, blocks.GrowingBlock, blocks.PrintoutBlock}
    cards = [fields["state"] for kind, *_, fields in ROWS.values() if kind is blocks.ToolCard and "state" in fields]
    assert {*cards, "waiting"} == set(get_args(blocks.State))


@pytest.mark.parametrize(("kind", "log", "page", "terminal_text", "document", "fields"), ROWS.values(), ids=ROWS)
def test_each_renderer_shows_a_block(kind, log, page, terminal_text, document, fields):
    log = [*started(), *log]
    block = [block for block in Transcript(log).blocks if isinstance(block, kind)][-1]
    alone = Snapshot([block], None)
    assert words_of(html.render(alone, prompt=True)) == page
    assert terminal.render(alone, prompt=True) == terminal_text
    log = [event for event in log if not isinstance(event, events.MapProgress)]  # which no history has
    assert kind is blocks.ProgressBlock or document in to_markdown([turn(*log)])
    view = block.render(JsonRenderer())
    assert {name: view[name] for name in fields} == fields


def test_the_card_of_a_clients_call_bears_its_name_and_its_prompt_and_figures_are_not_shown():
    begun = [events.TurnStarted(user("codex calls run_query"), f"{events.SERVED}codex"), events.StepStarted(1, MODEL)]
    result = ToolResult(CALL.id, CALL.name, (Text("3"),))
    log = [*begun, *asked_for(CALL), *carried_out(CALL, result)]
    log.append(events.TurnFinished(replace(over()[-1].result, usage=Usage())))
    shown = Transcript(log)
    assert words_of(html.render(shown, prompt=True)) == f"✓ codex {CARD} 31 ms {GIVEN} Result 3"
    assert terminal.render(shown, prompt=True) == f"✓ codex: {QUERY} [31 ms]\n  3"
    prompt, card, footer = (cast("Any", block.render(JsonRenderer())) for block in shown.blocks)
    assert (prompt["client"], card["client"], footer["figures"]) == ("codex", "codex", [])
    shown.feed(events.TurnStarted(user("Hello"), MODEL))
    shown.feed(events.ToolStarted(CHANGED, ""))
    assert cast("Any", shown.blocks[-1].render(JsonRenderer()))["client"] == ""


NEW = "quota_<b>\x1b[31m"
"""A word that no table has: a newer version wrote it, or code of the user."""
UNKNOWN = {
    "the end of a turn": [events.TurnFinished(replace(over("Yes.")[-1].result, stop_reason=NEW))],
    "the level of a notice": [events.Notice(NEW, "Look here.")],
    "the state of a task": [
        events.Planned(PLAN),
        events.TaskFinished("t1", NEW, "gone"),
    ],
    "the status of a result": [
        events.ToolStarted(ToolCall("c", "clock", {}), ""),
        events.ToolFinished(ToolResult("c", "clock", (), NEW)),
    ],
    "the fate of a proposed cell": [CHANGE, events.ProposalSettled("p", NEW)],
    "the place of a proposed cell": [replace(CHANGE, place=NEW)],
    "what is to be done with a proposed cell": [replace(CHANGE, action=NEW)],
    "the kind of a proposed cell": [replace(CHANGE, kind=NEW)],
}


@pytest.mark.parametrize("log", UNKNOWN.values(), ids=UNKNOWN)
def test_each_renderer_shows_a_word_that_it_does_not_know(log):
    log = [*started(), *log]
    blocks_of_log = Transcript(log).blocks
    alone = Snapshot(blocks_of_log, None)
    page = html.render(alone, prompt=True)
    assert "<b>\x1b" not in page
    assert "\x1b" not in terminal.render(alone, prompt=True)
    assert to_markdown([turn(*log)])
    assert all(block.render(JsonRenderer()) for block in blocks_of_log)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ended": "done", "total": 30}, ["30 rows", "$0.0300"]),
        (
            {"ended": "budget", "notices": ("The budget is used up.",)},
            ["Stopped at the budget", "used up", "--to FILE"],
        ),
        ({"ended": "failed", "answered": 0, "failed": 0}, ["Failed: 0 of 100 rows"]),
        ({"total": None, "left": None, "projected": None}, ["30 rows", "8 under way"]),
        ({"errors": (("x\x1b[31m" + "y" * 9_000, 1),)}, ["1 row: xy"]),
        ({"notices": ("n" * 9_000,) * 99}, ["nnn"]),
        ({"failed": 9, "in_doubt": 1}, ["2 rows: <b>refused</b>", "8 rows: other errors"]),
        ({"usage": Usage(9, 0, 1, 0, 1, cost=None)}, ["10 tokens, price unknown"]),
    ],
)
def test_a_map_tells_how_it_ended_in_bounded_words_and_nothing_of_the_clock_if_asked(changes, told):
    block = blocks.ProgressBlock(replace(RUNNING, **changes))
    for times in (True, False):
        shown = terminal.TextRenderer(times=times).progress(block)
        assert [words for words in told if words not in shown] == []
        assert len(shown) < 6_000
        assert "\x1b" not in shown
        assert times or not any(word in shown for word in ("minute", "left", "9.0 s"))
        page = html.render(Snapshot([block], None), times=times)
        assert times or not any(word in page for word in ("minute", "left", "9.0 s"))


def test_a_map_goes_on_beside_a_turn_and_keeps_its_block():
    transcript = Transcript([*started(), RUNNING, *text("An answer.")])
    transcript.feed(events.StepRetried(1, 1, 2.0, "Rate limited."))
    transcript.feed(over("Yes.")[-1])
    transcript.feed(replace(RUNNING, answered=98, ended="done"))
    transcript.feed(replace(RUNNING, id="another"))
    maps = [block for block in transcript.blocks if isinstance(block, blocks.ProgressBlock)]
    assert [(block.progress.answered, block.open) for block in maps] == [(98, False), (28, True)]


def test_the_result_of_a_loop_of_ones_own_says_why_it_has_stopped():
    result = replace(over("Yes.")[-1].result, stop_reason="max_steps")
    page = html.render(Snapshot(Transcript([*started(), events.TurnFinished(result)]).blocks, None))
    assert "stopped: max steps" in words_of(page)
    assert "max_steps: 'Yes.'" in repr(result)


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        (f"Which of \n\n{TABLE}\n\n sold?", "Which of {sales} sold?"),
        (f"What is (\n\n{TABLE}\n\n)?", "What is ({sales})?"),
        (f"Look:\n\n{TABLE}\n\nWhat sold?", "Look:\n\n{sales}\n\nWhat sold?"),
        (f"{TABLE}\nand again {TABLE}", f"{{sales}}\nand again {TABLE}"),
        ("Look at @n.txt, <b>.", "Look at @n.txt, <b>."),
    ],
)
def test_a_table_that_a_prompt_holds_is_shown_by_the_name_that_stands_for_it(sent, asked):
    block, *_ = Transcript([events.TurnStarted(user(sent), MODEL, VALUES)]).blocks
    assert isinstance(block, blocks.PromptBlock)
    assert words.typed_text(block) == asked
    fields = JsonRenderer().prompt(block)
    assert (fields["text"], fields["stretches"]) == (sent, [] if asked == sent else [(asked, False)])
