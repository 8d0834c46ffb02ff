"""What the view is shown: Markdown of all kinds, servers, a turn in the inspector."""

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
