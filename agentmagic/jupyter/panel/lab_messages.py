"""The messages that the JupyterLab extension (js/lab) sends, beside `AskAboutOutput`. The browser page is untrusted."""

from typing import Annotated, Literal

from pydantic import Field

from agentmagic.events import ProposalFate
from agentmagic.widgets.page_messages import Name, PageMessage, TypedText

MOST_SETTLED = 10_000
"""The most staged cells that one message can settle."""


class GreetKernel(PageMessage):
    """Message: a browser page has connected to the kernel, or has lost its state, and needs the whole state."""

    type: Literal["hello"] = "hello"


class DockPanel(PageMessage):
    """Message: a browser page is about to draw the docked chat panel, and needs the panel's view."""

    type: Literal["dock"] = "dock"


class CellFate(PageMessage):
    """What the user did with one cell that the model proposed; `source` is the new text of a changed cell."""

    id: Name
    fate: ProposalFate
    source: TypedText = ""
    ran: bool = False


class SettleProposals(PageMessage):
    """Message: the user has kept, changed or discarded cells that the model proposed."""

    type: Literal["settle"] = "settle"
    settled: Annotated[list[CellFate], Field(max_length=MOST_SETTLED)]
