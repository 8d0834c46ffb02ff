"""A planned turn with every API: each takes the decisions, and accepts the calls that come from the plan."""

import json

from tests.contracts.conversing import every_api
from tests.providers.strict.script import say

DECISIONS = (
    {"route": "tools"},
    {
        "tasks": [
            {"id": "t1", "tool": "clock", "parameters": {"zone": "UTC"}, "description": "noon", "depends_on": []},
            {"id": "t2", "tool": "clock", "parameters": {"zone": "$t1"}, "description": "there", "depends_on": ["t1"]},
        ]
    },
    {"zone": "CET"},
)


@every_api
def test_a_planned_turn_is_one_that_the_api_goes_on_from(conversation, api):
    decisions = [say(json.dumps(decision)) for decision in DECISIONS]
    with conversation(api, *decisions, say("Noon in both.")) as talk:
        result, error = talk.ask(plan=True)
        assert error is None, error
        assert (result.final_text, talk.ran) == ("Noon in both.", ["UTC", "CET"])
        assert result.usage.requests == 4
        talk.goes_on()
