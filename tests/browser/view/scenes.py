"""Conversations to look at: every block, every state, Markdown of all kinds."""

import json
from base64 import b64decode

from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    Notice,
    PartDelta,
    PartStarted,
    QuestionAnswered,
    QuestionAsked,
    StepFinished,
    StepRetried,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from agentmagic.messages import Media, Text, ToolCall, ToolResult, Usage
from tests.display.logs import answered, asked_for, carried_out, over, reasoning, started, step_over, text

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
MODEL = "gemini:gemini-3.5-flash"

TABLES = ToolCall("c1", "list_tables", {})
WRONG = ToolCall("c2", "run_query", {"sql": "SELECT name, sales FROM products ORDER BY sales"})
RIGHT = ToolCall(
    "c3",
    "run_query",
    {
        "sql": "SELECT p.name, SUM(s.amount) AS total FROM products p\n"
        "JOIN sales s ON s.product_id = p.id GROUP BY 1 ORDER BY 2 DESC"
    },
)
TREND = ToolCall("c4", "fit_trend", {"column": "total", "periods": 12})
PYTHON = ToolCall(
    "c5",
    "run_python",
    {"code": 'forecast["gap"] = forecast["yhat"] - totals.reindex(forecast.index)\nforecast.plot(y=["yhat", "gap"])'},
)
ROWS = [{"name": "Lamp", "total": 12480}, {"name": "Desk", "total": 9105}, {"name": "Chair", "total": 7730}]
NESTED = {"region": "EU", "shops": [{"city": "Paris", "open": True, "id": 12345678901234567890}, {"city": "Rome"}]}

PARIS = """Three orders came from customers in **Paris**.

```python
orders[orders.city == "Paris"].shape[0]
```"""

MARKDOWN = """Three things stand out, the **first** by far:

1. Lamp sells *best*, a third more than Desk
2. Chair falls behind, see `orders.city`
   - in Paris
   - in Rome
3. ~~Nothing else~~ matters

- [x] totals checked
- [ ] forecast checked

| product | total | share |
|:--|--:|:-:|
| Lamp | 12,480 | 43 % |
| Desk | 9,105 | 31 % |

```python
def gap(forecast: pd.DataFrame, totals: pd.Series) -> pd.Series:
    \"\"\"Return what the forecast missed.\"\"\"
    return forecast["yhat"] - totals.reindex(forecast.index)  # by month
```

The mean is $\\bar{x} = \\frac{1}{n}\\sum_{i=1}^n x_i$, for $5 and $6 a piece:

$$
\\int_0^\\infty e^{-x^2}\\,dx
= \\frac{\\sqrt{\\pi}}{2}
$$

> Forecasts are hard, especially about the future.

See [the docs](https://docs.example/forecast) and ![a picture](https://elsewhere.example/x.png).
"""


def turn() -> list[Event]:
    """A turn under way, with a card in every state."""
    approval = ApprovalAsked("a1", PYTHON, "notebook")
    return [
        *started("Which product sells best, and is the forecast in line with it?"),
        *reasoning("I need the **sales** table first.", 0),
        *text("I'll look at the sales first.", 1),
        *asked_for(TABLES, 2),
        *asked_for(WRONG, 3),
        *step_over(),
        *answered(TABLES, Text('["products", "sales"]')),
        ToolStarted(WRONG, "shop"),
        ToolFinished(ToolResult("c2", "run_query", (Text("no such column: sales"),), "error"), 0.009),
        StepStarted(2, MODEL),
        *asked_for(RIGHT, 0),
        *asked_for(TREND, 1),
        *asked_for(PYTHON, 2),
        StepFinished(2, Usage(5200, 3900, 407, 0, 3, 0.0019), "stop"),
        *answered(RIGHT, Text(json.dumps(ROWS))),
        ToolStarted(TREND, "notebook"),
        ToolProgress("c4", 62, 100, "fitting"),
        approval,
    ]


def conversation() -> list[Event]:
    """Turns that are over, and one whose request is sent again."""
    count = ToolCall("c1", "run_query", {"sql": "SELECT COUNT(*) FROM orders WHERE city = 'Paris'"})
    tree = ToolCall(
        "c2",
        "describe",
        {"region": "EU", "options": {"deep": [1, 2, 3], "why": "to see what a nested argument looks like"}},
    )
    plot = ToolCall("c3", "plot", {"kind": "bar"})
    denied = ToolCall("c4", "delete_rows", {"table": "orders"})
    stopped = ToolCall("c5", "crawl", {"url": "https://shop.example"})
    return [
        *started("How many orders came from Paris?"),
        *asked_for(count),
        *step_over(),
        *answered(count, Text("3")),
        *[
            StepStarted(2, MODEL),
            *text(PARIS),
        ],
        *[*step_over(2), *over(PARIS)],
        *started("Describe it all"),
        *[*asked_for(tree, 0), *asked_for(plot, 1), *asked_for(denied, 2), *asked_for(stopped, 3), *step_over()],
        *answered(tree, Text(json.dumps(NESTED))),
        *carried_out(plot, ToolResult("c3", "plot", (Media("image/png", PNG, "a plot"),)), "notebook"),
        *[ApprovalAsked("a0", denied, "shop"), ApprovalGiven("a0", approved=False, reason="Never delete.")],
        ToolFinished(ToolResult("c4", "delete_rows", (Text("The user denied this call: Never delete."),), "denied")),
        *carried_out(stopped, ToolResult("c5", "crawl", (Text("interrupted"),), "interrupted"), "web"),
        *[QuestionAsked("q0", "Which year?"), QuestionAnswered("q0", "2026")],
        Notice("warning", "The model knows nothing of 2026."),
        *[StepStarted(2, MODEL), *text(MARKDOWN), *step_over(2), *over(MARKDOWN, "limit")],
        *started("And from London, by month, as a plot"),
        StepRetried(1, 1, 2.0, "Rate limited."),
        QuestionAsked("q1", "As a bar or as a line plot?"),
    ]


def streaming() -> list[Event]:
    """An answer that is being written."""
    return [
        *started("Tell me"),
        PartStarted(0, "text"),
        PartDelta(0, "**Lamp** leads with 12,480, a third more than Desk. The forecast is "),
    ]


SERVERS = [
    {
        "name": "shop",
        "state": "ready",
        "error": "",
        "stderr": "listening\n",
        "tools": [("run_query", True), ("list_tables", True), ("delete_rows", False)],
    },
    {
        "name": "web",
        "state": "failed",
        "error": "The command npx was not found. Install Node.js.",
        "stderr": "sh: npx: not found\n",
        "tools": [],
    },
]


INSPECTION = {
    "turn": 2,
    "turns": 2,
    "heading": "Turn 2, openai:gpt-5.4: What time is it?",
    "meter": "1,234 tokens of the window of 272,000 (0.5%)",
    "share": 0.005,
    "bars": [
        {"name": "Step 1", "depth": 0, "start": 0.0, "share": 0.5, "time": "0.8 s", "failed": False},
        {"name": "clock", "depth": 1, "start": 0.5, "share": 0.1, "time": "0.2 s", "failed": True},
        {"name": "Step 2", "depth": 0, "start": 0.6, "share": 0.4, "time": "0.7 s", "failed": False},
    ],
    "requests": [
        {
            "title": f"Step {number}",
            "tokens": {"instructions": 20, "tools": 200, "history": 40, "results": 12, "prompt": 30},
            "counted": "; the provider counted 300 in, 20 out",
            "sent": '{\n  "model": "gpt-5.4",\n  "input": "' + words + '"\n}',
            "sent_note": "POST https://api.openai.com/v1/responses",
            "received": '{"type": "response.created"}\n{"delta": "' + words + '"}',
            "received_note": "Status 200.",
        }
        for number, words in ((1, "what time"), (2, "it is noon"))
    ],
    "note": "",
}
