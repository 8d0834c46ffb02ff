"""Makes the tool that proposes a cell to the user, and the report that tells the model what the user decided."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import uuid4

from agentmagic.errors import ToolError
from agentmagic.events import (
    CellAction,
    CellKind,
    CellPlace,
    CellProposed,
    Event,
    ProposalFate,
    ProposalSettled,
    innermost,
)
from agentmagic.host import NotebookCell, RunningNotebook, current_host
from agentmagic.messages import Message, Resource
from agentmagic.secrets import redact
from agentmagic.text import cut, reveal, single_line
from agentmagic.tools.base import Tool, ToolContext
from agentmagic.tools.functions import function_tool

LONGEST_SOURCE = 20_000
"""Maximum number of characters of a proposed cell, and of the cell that it would change."""
LONGEST_WHY = 300
MOST_REPORTS = 100
"""Maximum number of decided proposals that are reported to the model in one prompt."""
LONGEST_REPORT = 4_000
"""Maximum number of characters of a cell changed by the user that are reported to the model."""

FATES = "notebook:proposals"
"""URI of the prompt part that tells the model which proposed cells were kept."""

_PLACES: dict[CellPlace, str] = {
    "staged": "It stands in the notebook for the user to keep or discard, and is not run.",
    "below": "Inserted below this cell, and not run.",
    "shown": "Shown to the user, who can copy it; it could not be put into the notebook.",
}
_FATE_TEXTS: dict[ProposalFate, str] = {
    "kept": "the user kept it",
    "changed": "the user kept it with changes",
    "discarded": "the user discarded it",
}
LATER = "You are told what became of it in the user's next message."


def proposal_tool(notebook: RunningNotebook) -> Tool:
    """Return the tool that proposes to insert, change or remove a cell. A proposed cell is not run."""

    def propose_cell(  # noqa: PLR0913  (what a proposal is made of)
        why: str,
        context: ToolContext,
        source: str = "",
        kind: CellKind = "code",
        action: CellAction = "insert",
        cell: int = 0,
    ) -> str:
        """Propose a cell of the notebook to the user, who decides whether to keep it. It is never run by itself.

        Args:
            why: One sentence for the user on what it is for.
            context: The call.
            source: The whole text of the new or changed cell; nothing for a removal.
            kind: Whether the cell is code or Markdown.
            action: Insert a new cell, change a cell, or remove one.
            cell: The number of the cell to change, to remove, or to insert below, as read_cells shows it. A new cell
                without it comes below the cell that runs.

        Example: Give me a cell that plots df. -> {"source": "df.plot()", "why": "Plots all columns of df."}
        """
        text = redact(source.replace("\r\n", "\n"))
        _check(text, action, cell)
        target = _target(notebook, action, cell) if cell else None
        new = CellProposed(uuid4().hex, action, kind, text, single_line(redact(why), LONGEST_WHY), number=cell)
        proposal = notebook.stage(new if target is None else _completed_proposal(new, target))
        context.propose(proposal)
        return f"{_PLACES[proposal.place]} {LATER}"

    # Not parallel, because several proposals must be shown in the order of their calls.
    return replace(function_tool(propose_cell), parallel=False)


def _completed_proposal(proposal: CellProposed, target: NotebookCell) -> CellProposed:
    """Return a copy of a proposal with its cell's id. Unless it inserts a cell, add the cell's kind and old source."""
    if proposal.action == "insert":
        return replace(proposal, cell=target.id)
    kind = "markdown" if target.kind == "markdown" else "code"
    source = "" if proposal.action == "remove" else proposal.source
    return replace(proposal, cell=target.id, kind=kind, source=source, before=target.source)


def _check(source: str, action: CellAction, cell: int) -> None:
    """Raise ToolError for a proposal that is incomplete or too long, or that has invisible characters."""
    if action != "remove" and not source.strip():
        raise ToolError("The cell is empty. Write its source.")
    if action != "insert" and not cell:
        raise ToolError(f"Say which cell you want to {action}: its number, as read_cells shows it.")
    if len(source) > LONGEST_SOURCE:
        raise ToolError(
            f"The cell has {len(source):,} characters, and {LONGEST_SOURCE:,} is the most. Propose several cells."
        )
    if reveal(source) != source:
        raise ToolError("The cell holds characters that a reader cannot see. Write them as escapes, such as \\u200b.")


def _target(notebook: RunningNotebook, action: CellAction, number: int) -> NotebookCell:
    cells, where = notebook.cells()
    cell = next((candidate for candidate in cells if candidate.number == number), None)
    if cell is None:
        raise ToolError(f"There is no cell {number}. {where}")
    if action != "insert" and len(cell.source) > LONGEST_SOURCE:
        raise ToolError(f"Cell {number} has {len(cell.source):,} characters, and {LONGEST_SOURCE:,} is the most.")
    return cell


# -- what became of them -----------------------------------------------------------------------------------


def open_proposals(events: Iterable[Event]) -> tuple[CellProposed, ...]:
    """Return the proposed cells in a session's events that the user has neither accepted nor refused, oldest first."""
    proposals: dict[str, CellProposed] = {}
    for event in map(innermost, events):
        match event:
            case CellProposed():
                proposals[event.id] = event
            case ProposalSettled():
                proposals.pop(event.id, None)
            case _:
                pass
    return tuple(proposals.values())


def find_decisions(proposals: Iterable[CellProposed]) -> list[ProposalSettled]:
    """Return the user's decisions on proposed cells, as far as the present cells of the notebook show them."""
    notebook = current_host().notebook
    fates = (notebook.fate(one) for one in proposals) if notebook is not None else ()
    return [fate for fate in fates if fate is not None]


def with_report(prompt: Message, events: Iterable[Event], last: Sequence[Event]) -> Message:
    """Return a prompt with a part that tells the model how the user decided on proposed cells.

    The decisions are in `last`, the events of the last turn; the proposals are in `events`. If the prompt has such a
    part already, it is replaced.
    """
    parts = tuple(part for part in prompt.parts if not is_report(part))
    decisions = [event for event in last if isinstance(event, ProposalSettled)]
    proposals = {one.id: one for one in map(innermost, events) if isinstance(one, CellProposed)} if decisions else {}
    decisions = [event for event in decisions if event.id in proposals]
    lines = [_line(proposals[one.id], one) for one in decisions[:MOST_REPORTS]]
    lines += [f"({len(decisions) - MOST_REPORTS} more)"] if len(decisions) > MOST_REPORTS else []
    if not lines:
        return prompt if len(parts) == len(prompt.parts) else replace(prompt, parts=parts)
    note = Resource(FATES, "What became of the proposed cells", "text/plain", "\n".join(lines))
    return replace(prompt, parts=(*parts, note))


def is_report(part: object) -> bool:
    """Return whether a part of a prompt is the report on proposed cells."""
    return isinstance(part, Resource) and part.uri == FATES


def _line(proposal: CellProposed, decision: ProposalSettled) -> str:
    changes = {
        "insert": "a new cell",
        "change": f"cell {proposal.number}",
        "remove": f"removing cell {proposal.number}",
    }
    ran = ", and ran it" if decision.ran else ""
    is_removal = proposal.action == "remove" and decision.fate == "kept"
    fate = "the user removed the cell" if is_removal else _FATE_TEXTS[decision.fate]
    line = f"- Your proposal ({changes[proposal.action]}: {proposal.why}): {fate}{ran}."
    if decision.fate != "changed":
        return line
    return f"{line} It is now:\n{cut(redact(decision.source), LONGEST_REPORT)}"
