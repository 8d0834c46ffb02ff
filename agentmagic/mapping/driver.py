"""Asks the rows of a map, each in its own turn.

Rows are asked on the engine thread, as many at a time as rate limits and budgets allow.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from agentmagic.approval.approvals import Gate as ApprovalGate
from agentmagic.approval.policy import policy_of
from agentmagic.context.request_view import tokens_of_message, tokens_of_tools
from agentmagic.errors import AgentMagicError, UsageError
from agentmagic.events import MapEnd
from agentmagic.loop.budgets import BudgetExhausted, Meter
from agentmagic.loop.retry import error_text
from agentmagic.loop.turn_context import TurnContext
from agentmagic.mapping.batching import BatchedRows
from agentmagic.mapping.costs import Costs
from agentmagic.mapping.failed_calls import failed_calls_notice
from agentmagic.mapping.file import MapFile, Recipe, RowEnded
from agentmagic.mapping.ledger import Ledger
from agentmagic.mapping.playback import Playback
from agentmagic.mapping.prompts import RowPrompt, digest
from agentmagic.mapping.reader import RowReader
from agentmagic.mapping.turns import RowTurns
from agentmagic.mapping.work import MapFailed
from agentmagic.messages import Usage
from agentmagic.plain_files import write_failure
from agentmagic.runtime.engine import engine
from agentmagic.secrets import redact
from agentmagic.serialization import encode
from agentmagic.text import json_line, plural
from agentmagic.tools.base import Tool, current_tools, list_sources, new_problems

LOOK_AHEAD = 2
"""How many rows of an iterator are read for each row that has a stored outcome, before rows are asked."""


class Driver:
    """Asks the rows of a map on the engine thread; their outcomes go to the `Ledger`."""

    def __init__(self, ledger: Ledger) -> None:
        self.reader = RowReader(ledger.work, ledger.tally)
        self._ledger = ledger
        self._tape = None if ledger.work.tape is None else Playback(ledger, self.reader, ledger.work.tape)
        self._turns: RowTurns | None = None

    async def run(self) -> None:
        """Ask the rows until each has an outcome, or a budget or an error ends the map. To stop it, cancel its task."""
        why: MapEnd = "done"
        reason = ""
        ledger = self._ledger
        ledger.main = asyncio.current_task()
        try:
            tools = await self._tools()
            if self._tape is None or not (why := await self._tape.play(tools)):
                await self._ask(tools)
                why = "done"
        except asyncio.CancelledError:
            why = "stopped"
        except BudgetExhausted as spent:
            why, reason = "budget", str(spent)
        except AgentMagicError as error:
            ledger.error = ledger.error or error
        except Exception as error:  # noqa: BLE001  (a map ends with its rows so far after any failure)
            ledger.error = MapFailed(f"The map failed: {error_text(error)}")
            ledger.error.__cause__ = error
        await self._settle(why, reason)

    async def _settle(self, why: MapEnd, reason: str) -> None:
        """End the map: wait for the rows that are being asked, or cancel them if the map was stopped or has failed.

        `reason` says which budget has ended the map. A map that has no answer, and could ask no row, fails with it.
        """
        ledger = self._ledger
        while self._turns:
            if why == "stopped" or ledger.error is not None:
                self._turns.cancel()
            try:
                await self._turns.wait()
            except asyncio.CancelledError:
                why = "stopped"
        ledger.note_earlier()
        if self._turns is not None and why != "stopped":
            ledger.error = ledger.error or self._failure_to_ask(reason)
        if reason and ledger.error is None:
            ledger.tally.notices.append(reason)
        ledger.tally.end("failed" if ledger.error is not None else why)
        rows = [row for _, row in sorted(ledger.rows.items())]
        ledger.tally.settle(rows)
        if (notice := failed_calls_notice(rows)) and notice not in ledger.tally.notices:  # a replay has it already
            ledger.tally.notices.append(notice)
        if self._tape is not None:
            self._tape.finish()
        if ledger.file is not None:
            ledger.file.close()
        ledger.tell()

    def _failure_to_ask(self, reason: str) -> MapFailed | None:
        """Return the error of a map that has no answer and could not ask a row, for example because of a budget."""
        ledger = self._ledger
        if ledger.is_sent or ledger.tally.statuses["answered"]:
            return None
        refusals = (row.error for row in ledger.finished if row.status == "not asked" and row.error)
        reason = reason or next(refusals, "")
        return MapFailed(f"No row was asked. {reason}") if reason else None

    async def _tools(self) -> list[Tool]:
        """Return the tools for all rows. Add notices to the progress about missing tools."""
        turn, notices = self._ledger.work.turn, self._ledger.tally.notices
        tools, problems = await list_sources(turn.toolsets)
        notices.extend(redact(problem) for problem in new_problems(problems, turn.unreachable))
        current, _ = current_tools(tools.values())
        self._ledger.asking_tools = frozenset(_asking_tools(turn, list(current.values())))
        return list(current.values())

    async def _ask(self, tools: Sequence[Tool]) -> None:
        """Ask the rows that have no answer yet."""
        ledger = self._ledger
        if self._tape is not None:
            ledger.work = self._tape.live()
        work = ledger.work
        file = await self._open(tools)
        costs = self._costs(file, tools)
        turns = self._turns = RowTurns(ledger, costs)
        turns.doubts |= file.doubtful_keys | file.repeated_keys
        batches = BatchedRows(ledger, costs, turns, [tool.name for tool in tools]) if work.settings.batch else None
        if self._tape is not None:
            self._tape.start()
        unreadable = await self._keep_rows(file)
        if len(ledger.rows) != ledger.tally.total:  # else each row has an outcome, and none is read again
            unreadable = await self._start_rows(file, turns, batches) or unreadable
        if batches is not None:
            await batches.ask()
        await turns.wait()
        if unreadable is not None:  # raised only now, after the rows before it were asked
            raise unreadable

    async def _start_rows(self, file: MapFile, turns: RowTurns, batches: BatchedRows | None) -> UsageError | None:
        """Start to ask the rows that have no outcome yet. Return the error if the rows cannot be read."""
        try:
            async for prompt in self.reader.prompts_to_ask():
                if prompt.place in self._ledger.rows or self._settle_row(prompt, file):
                    continue
                if batches is None:
                    await turns.start(prompt)
                else:
                    batches.waiting.append(prompt)
        except UsageError as error:
            return error
        return None

    async def _keep_rows(self, file: MapFile) -> UsageError | None:
        """Add the stored outcomes to the map's result before a row is asked, so that a map that ends early has them.

        Return the error if the rows cannot be read; the rows before it can be asked. If the number of rows is known, a
        map that is stopped meanwhile still gets all stored outcomes.
        """
        reading = asyncio.create_task(self._read_stored_rows(file))
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            if self._ledger.error is None and self._ledger.work.rows.total is not None:
                await asyncio.wait([reading])
            raise
        finally:
            reading.cancel()

    async def _read_stored_rows(self, file: MapFile) -> UsageError | None:
        stored_count = file.row_count + (0 if self._tape is None else len(self._tape.rows))
        if not stored_count:
            return None
        # Read only the first rows of an iterator, because it may be slow or endless; others may have come among them.
        most = sys.maxsize if self._ledger.work.rows.total is not None else LOOK_AHEAD * stored_count
        try:
            async with aclosing(self.reader.prompts_to_ask()) as prompts:
                async for prompt in prompts:
                    self._settle_row(prompt, file)
                    if (most := most - 1) == 0:
                        break
        except UsageError as error:
            return error
        return None

    async def _open(self, tools: Sequence[Tool]) -> MapFile:
        """Open the file that stores the map's answers. Raises UsageError if this map cannot write to the file."""
        ledger, path = self._ledger, self._ledger.work.path
        recipe = self._recipe(tools)
        ledger.request = digest(*recipe.parts.values())
        if (kept := ledger.work.kept) is not None:
            ledger.file = kept
            return kept
        try:
            file = await engine().in_pool(partial(MapFile, path, recipe, again=ledger.work.settings.again))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {write_failure(error, 'Name another file.')}") from error
        if file.damaged_lines:
            lines = plural(file.damaged_lines, "line")
            ledger.tally.notices.append(f"{path} has {lines} that cannot be read; their rows are asked again.")
        ledger.file = file
        return file

    def _costs(self, file: MapFile, tools: Sequence[Tool]) -> Costs:
        """Return the costs of the map, earlier runs included. A row asked without an outcome counts as average."""
        work, usage = self._ledger.work, file.usage
        if self._tape is not None:
            usage += self._tape.recorded_usage(file)
        if (doubt_count := file.lost_requests + len(file.doubtful_keys)) and file.outcomes:
            share = doubt_count / len(file.outcomes)
            cost = None if usage.cost is None else usage.cost * share
            usage += Usage(int(usage.input_tokens * share), 0, int(usage.output_tokens * share), cost=cost)
        common = tokens_of_tools(work.turn.agent.whole_instructions, [tool.definition for tool in tools])
        common += sum(map(tokens_of_message, work.turn.history.messages))
        own = Meter("map", work.settings.max_cost, work.settings.max_tokens, usage)
        costs = Costs(work.turn, common, (own, *work.meters))
        if costs.notice:
            self._ledger.tally.notices.append(costs.notice)
        return costs

    def _settle_row(self, prompt: RowPrompt, file: MapFile) -> bool:
        """If a row has an answer already or cannot be asked, add its outcome to the map's result and return True."""
        ledger = self._ledger
        if self._tape is not None and self._tape.keep(prompt):
            return True
        outcome = file.last_outcome(prompt.key, ledger.label(prompt))
        if outcome is not None and outcome.status == "answered" and ledger.keep(prompt, outcome):
            return True
        if prompt.prompt is None:
            ledger.note(prompt, RowEnded(prompt.key, ledger.label(prompt), "failed", error=prompt.problem))
            return True
        if outcome is not None and outcome.status not in ("answered", "not asked"):
            ledger.earlier[prompt.place] = replace(prompt, prompt=None), outcome
            if outcome.status == "in doubt" and self._turns is not None:
                self._turns.doubts.add(prompt.key)
        return False

    def _recipe(self, tools: Sequence[Tool]) -> Recipe:
        """Return the description of the request that all rows share, with a digest of each part."""
        turn, prompts = self._ledger.work.turn, self._ledger.work.prompts
        schema = turn.agent.output_schema
        definitions = [
            (definition.name, definition.server, definition.description, definition.parameters)
            for definition in (tool.definition for tool in tools)
        ]
        parts = {
            "prompt": prompts.digest,
            "model": turn.model.name,
            "type": digest("" if schema is None else json_line(schema.schema)),
            "instructions": digest(turn.agent.instructions),
            "tools": digest(*map(json_line, definitions)),
            # The file keeps its answers if the limit of output changes: rows that were cut off at it are asked again.
            "settings": digest(repr(replace(turn.agent.settings, max_output_tokens=None))),
            "conversation": digest(*map(encode, turn.history.messages)),
        }
        return Recipe(prompts.text, turn.model.name, parts)


def _asking_tools(turn: TurnContext, tools: Sequence[Tool]) -> Iterator[str]:
    """Yield the names of tools whose calls need approval. These calls are denied: a row cannot ask the user."""
    gate = ApprovalGate(policy_of(turn.agent.permission), turn.approvals)
    for tool in tools:
        is_web = tool.hosted is not None
        if gate.decide(tool.definition, {}, asks=tool.ask, code=tool.code, web=is_web).verdict == "ask":
            yield tool.name
