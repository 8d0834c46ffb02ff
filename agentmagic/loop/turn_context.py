"""The context of a turn: everything that the turn needs, and what an inner turn gets from the turn around it."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agentmagic.agent import Agent
from agentmagic.approval.approvals import Approvals, Ask, Gate
from agentmagic.bill import Account
from agentmagic.context.request_view import RequestView
from agentmagic.context.rules import NO_PROJECT, Project
from agentmagic.events import Event, Notice, PromptValue
from agentmagic.history.history import History
from agentmagic.loop.budgets import Meter, Reservations
from agentmagic.messages import Message
from agentmagic.plan import PlanOptions
from agentmagic.providers.base import KINDS, Model
from agentmagic.providers.catalog import ModelInfo
from agentmagic.providers.traffic import TurnTraffic
from agentmagic.runtime.timeouts import GRACE
from agentmagic.tools.base import Toolset
from agentmagic.undo.changes import Changes
from agentmagic.undo.watcher import Watcher

AgentPath = tuple[str, ...]
"""The names of nested agent tools, the outermost first; () for a turn that no agent tool began."""
DEEPEST_TURN = 3
"""How many turns of agents may be nested inside a turn."""
GRACE_AROUND = GRACE * 2
"""Seconds that a cancelled call of an agent tool gets to end.

The turn inside gives GRACE seconds to its own calls, and then ends.
"""


class SeenNotices:
    """Remembers the notices that a session has given about its settings, tools and servers: each is given once.

    A changed text is a new notice. A session that is reopened gives its notices again. Notices about a single turn,
    such as a retry or a limit that is reached, are given in each turn and do not pass through here.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def new(self, notices: Iterable[str]) -> list[str]:
        """Return those notices that the session has not given before, without duplicates, and remember them."""
        new = [notice for notice in dict.fromkeys(notices) if notice not in self._seen]
        self._seen.update(new)
        return new


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Everything that a turn needs. A new field needs a row in `inner_turn.ORIGINS`: what an inner turn has of it.

    `history` is the session's past. The turn adds no messages to it, but its journal (the file of the saved
    conversation) records every event. `view` is what earlier turns sent of that history to the model. `facts` are the
    known properties of the model. `meters` limit and count the usage of each request, that of inner turns included.
    `notices` are emitted as they come, the first ones right after the start of the turn. `plan` says how the turn is
    planned, or is None. `step` pauses the turn before each request and call. `tape` records the turn or plays it back:
    it is called with each event, and returns the event to emit. `traffic` keeps the requests to the model and the
    responses. `values` describe the values that the prompt names, as the model gets them. `seen_notices` remembers the
    notices that the session has given. `unreachable` has the server problems that the user was already warned of, by
    the path of the agent that misses the server. `watcher` finds out what the tools change. `row` reserves the costs of
    requests if the turn is one row of a map, or inside one; the requests then wait for those of other rows. `caller` is
    the outside program that makes the calls in place of a model, or "". `project` are the files around the notebook
    that the model knows. `account` pays for each request that is sent. `around` is the outer turn if an agent tool has
    begun this one, and `name` is the name of the agent if there are several.
    """

    agent: Agent
    model: Model
    toolsets: Sequence[Toolset]
    prompt: Message
    history: History = field(default_factory=History)
    approvals: Approvals = field(default_factory=Approvals)
    facts: ModelInfo = ModelInfo("", None, KINDS, priced=True)  # noqa: RUF009  (a frozen value)
    view: RequestView = field(default_factory=RequestView)
    meters: Sequence[Meter] = ()
    notices: deque[Notice] = field(default_factory=deque[Notice])
    plan: PlanOptions | None = None
    step: bool = False
    tape: Callable[[Event], Event] | None = None
    traffic: TurnTraffic = field(default_factory=TurnTraffic)
    values: tuple[PromptValue, ...] = ()
    seen_notices: SeenNotices = field(default_factory=SeenNotices)
    unreachable: dict[AgentPath, set[str]] = field(default_factory=dict[AgentPath, set[str]])
    watcher: Watcher = field(default_factory=Watcher)
    row: Reservations | None = None
    caller: str = ""
    project: Project = NO_PROJECT
    account: Account = Account()  # noqa: RUF009  (a frozen value)
    around: "OuterTurn | None" = None
    name: str = ""

    @property
    def agent_path(self) -> AgentPath:
        """The names of the agent tools that this turn is nested in, its own included."""
        return () if self.around is None else (*self.around.turn.agent_path, self.name)


@dataclass(frozen=True, slots=True)
class OuterTurn:
    """What an inner turn, the turn of an agent tool, gets from the outer turn that called the tool.

    `turn` is the context of the outer turn. `gate` has the permission rules that also hold for inner calls. Its
    deadline is paused whenever that of the inner turn is. `tell` receives the events of the inner turn, `ask` puts a
    question of the inner turn to the user, and `keep` receives the changes that the inner turn's tools made. `meters`
    limit and count the requests of the inner turn too. `steps` says whether the inner turn pauses before its requests
    and calls.
    """

    turn: TurnContext
    gate: Gate
    tell: Callable[[Event], None]
    ask: Ask
    keep: Callable[[Sequence[Changes]], None]
    meters: Sequence[Meter]
    steps: bool = False
