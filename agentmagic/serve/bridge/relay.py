"""`python -m agentmagic bridge`: an MCP server on stdio that passes messages on to a served kernel, and back.

The bridge outlives kernels. If the kernel ends, open requests get an error that says so. When a kernel of the same
notebook is served again, the bridge joins that kernel and repeats the client's handshake. No request is sent twice.
"""

import asyncio
import re
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, cast

from agentmagic.errors import MissingExtra, UsageError, with_code
from agentmagic.serve import kernels
from agentmagic.serve.bridge import no_kernel
from agentmagic.serve.bridge.client_state import ClientState, requested_notifications
from agentmagic.serve.bridge.envelope import (
    LARGEST,
    TOO_LONG,
    UNREADABLE,
    Envelope,
    RequestId,
    failure,
    make,
    read,
    subscription,
)
from agentmagic.serve.bridge.kernel_link import KernelLink, LinkBroken
from agentmagic.serve.bridge.pipes import Pipes
from agentmagic.serve.bridge.selection import choose, label, lines
from agentmagic.serve.kernels import ServedKernel

POLL = 0.5
"""Seconds between two checks of the files of served kernels."""
ENDING = 1.0
"""How long to wait for a process to end after its connections broke, in seconds."""
HANDSHAKE = 10.0
"""Timeout for the handshake with a kernel, in seconds."""
MOST = 1000
"""The largest number of open requests."""

_CHANGES = {"tools": "toolsListChanged", "resources": "resourcesListChanged", "prompts": "promptsListChanged"}
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,15})|"([^"\\]{1,100})")')


def show() -> None:
    """Print a line for each kernel that this user serves over MCP."""
    sys.stdout.write("".join(f"{line}\n" for line in lines(kernels.find_all())))


def serve(notebook: str = "") -> None:
    """Connect standard input and output to the kernel of a notebook until the MCP client closes its end.

    Without `notebook`, connect to the only served kernel, or to the one nearest to the current folder. Raises
    MissingExtra if a package is missing.
    """
    if find_spec("httpx2") is None:
        raise MissingExtra("The bridge", "mcp")
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(notebook))


async def _serve(notebook: str) -> None:
    pipes = Pipes()
    if sys.platform != "win32":
        for name in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(name, pipes.ended.set)
    work = asyncio.create_task(Bridge(notebook, pipes).run())
    end = asyncio.create_task(pipes.ended.wait())
    try:
        await asyncio.wait((work, end), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, end):
            task.cancel()
        await asyncio.gather(work, end, return_exceptions=True)


@dataclass(eq=False, slots=True)
class Passage:
    """A client's request that was passed to a kernel and is not answered yet."""

    request: Envelope
    link: KernelLink
    task: "asyncio.Task[None] | None" = None


class Bridge:
    """Passes messages between one MCP client and a kernel. If the kernel ends, it joins the notebook's next kernel."""

    def __init__(self, notebook: str, pipes: Pipes) -> None:
        self._notebook = notebook
        self._pipes = pipes
        self._client = ClientState()
        self._link: KernelLink | None = None
        self._last: ServedKernel | None = None
        """The kernel that was joined last; from then on, only kernels of its notebook are joined."""
        self._refusing: ServedKernel | None = None
        """The kernel that refused the bridge; the bridge does not try to join it again."""
        self._reason = ""
        """Why there is no kernel, and what the user can do."""
        self._joining = asyncio.Lock()
        self._passages: dict[RequestId, Passage] = {}
        self._questions: dict[RequestId, tuple[KernelLink, RequestId]] = {}
        """Open requests of kernels, by the bridge's id: the kernel's link and its own id, to pass the answer back."""
        self._question_count = 0
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> None:
        """Pass messages on until cancelled."""
        try:
            async with self._tasks:
                await self._check_kernels()
                if self._link is None:
                    _note(self._reason)
                self._tasks.create_task(self._watch())
                while True:
                    await self._receive(*await self._pipes.line())
        finally:
            if self._link is not None:
                await self._link.aclose()

    # The kernel

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL)
            await self._check_kernels()

    async def _check_kernels(self) -> None:
        """If the bridge's kernel is no longer served, give it up; if the bridge has no kernel, join one."""
        async with self._joining:
            served = await asyncio.to_thread(kernels.find_all)
            if self._link is not None and self._link.kernel not in served:
                await self._drop_link(self._link, _ending(self._link.kernel))
            if self._link is not None:
                return
            try:
                kernel = self._choose(served)
            except UsageError as error:
                self._reason = str(error)
            else:
                if kernel != self._refusing:
                    await self._join(kernel)

    def _choose(self, served: Sequence[ServedKernel]) -> ServedKernel:
        """Return the kernel to join. Raises UsageError if no kernel matches, or more than one."""
        last = self._last
        if last is None:
            return choose(served, self._notebook)
        same = [one for one in served if (one.folder, one.notebook) == (last.folder, last.notebook)]
        if not same:
            raise UsageError(_ending(last))
        return same[-1]

    async def _join(self, kernel: ServedKernel) -> None:
        """Connect to a kernel, repeat the client's handshake, log level and subscriptions, and notify the client.

        If the kernel cannot be connected, only the reason is stored.
        """
        link, client = KernelLink(kernel), self._client
        try:
            if client.handshake is not None:
                await self._begin(link, client.handshake, client.version)
            if client.is_ready:
                await self._open(link)
        except LinkBroken as error:
            self._reason = str(error)
            self._refusing = kernel if error.kind == "refused" else None
            await link.aclose()
            return
        self._link, self._last = link, kernel
        _note(message := f"The kernel of {label(kernel)} is joined.")
        await self._log("info", message)
        for kind in _CHANGES if client.is_ready else ():
            if kind == "tools" or kind in link.capabilities:
                await self._send(make(method=f"notifications/{kind}/list_changed"))
        for request in list(client.listening.values()):
            self._pass_on(request, link)

    async def _begin(self, link: KernelLink, request: Envelope, version: str = "") -> dict[str, Any]:
        """Perform the MCP client's handshake with a kernel.

        Raises LinkBroken, also if the kernel answers too late, or with another MCP version than `version` (if given).
        """
        try:
            async with asyncio.timeout(HANDSHAKE):
                result = await link.begin(request.params or {})
        except TimeoutError:
            name = label(link.kernel)
            raise LinkBroken(f"The kernel of {name} does not answer. Interrupt it, or restart it.", "ended") from None
        if version and result.get("protocolVersion") != version:
            message = f"The kernel of {label(link.kernel)} speaks another version of MCP. Restart the client."
            raise LinkBroken(message, "refused")
        return result

    async def _open(self, link: KernelLink) -> None:
        """Tell a kernel that the handshake is complete, repeat the client's settings, and listen. Raises LinkBroken."""
        link.is_open = True
        await link.tell(make(method="notifications/initialized"))
        with suppress(LinkBroken, TimeoutError):
            async with asyncio.timeout(HANDSHAKE):
                for number, request in enumerate(list(self._client.settings.values())):
                    async for _ in link.ask(request.with_fields(id=f"bridge-{number}")):
                        pass
        link.listener = self._tasks.create_task(self._listen(link))

    async def _listen(self, link: KernelLink) -> None:
        """Pass on to the client the messages that the kernel sends without a request."""
        while not link.is_closed:
            with suppress(LinkBroken):
                async for message in link.listen():
                    await self._deliver(link, message)
                return  # no LinkBroken was raised, so the kernel offers no stream of its own messages
            await asyncio.sleep(POLL)

    async def _drop_link(self, link: KernelLink, why: str) -> None:
        """Give up the link to a kernel: send errors for requests that it did not answer, and withdraw its questions.

        Open subscriptions get no error: they continue with the next kernel.
        """
        if self._link is not link:
            return
        self._link, self._reason = None, why
        _note(why)
        # Remove the kernel's requests and questions before the first await, so that no other task still finds them.
        requests = {number: passage for number, passage in self._passages.items() if passage.link is link}
        questions = [number for number, (asking, _) in self._questions.items() if asking is link]
        for number, passage in requests.items():
            del self._passages[number]
            if passage.task is not None:
                passage.task.cancel()
        for number in questions:
            del self._questions[number]
        for number in (one for one in requests if one not in self._client.listening):
            await self._send(failure(number, why))
        for number in questions:
            await self._send(make(method="notifications/cancelled", params={"requestId": number, "reason": why}))
        await self._log("warning", why)
        self._tasks.create_task(link.aclose())

    # Messages of the client

    async def _receive(self, line: bytes, is_whole: bool) -> None:
        message = read(line) if is_whole else None
        if message is None:
            await self._reject(line, is_whole)
        elif message.method == "initialize" and message.is_request:
            await self._initialize(message)
        elif message.is_request:
            await self._handle_request(message)
        elif message.is_answer:
            await self._answer(message)
        else:
            await self._notify(message)

    async def _reject(self, line: bytes, is_whole: bool) -> None:
        """Drop a line that is not a valid message; send an error if it contains the id of a request."""
        if not line.strip():
            return
        subject = "A line that is not an MCP message" if is_whole else f"A message over {LARGEST} bytes"
        _note(f"{subject} was dropped.")
        if match := _ID.search(line[:4096]):
            number = int(match[1]) if match[1] else match[2].decode("utf-8", "replace")
            await self._send(failure(number, f"{subject} was dropped.", UNREADABLE if is_whole else TOO_LONG))

    async def _initialize(self, request: Envelope) -> None:
        """Perform the MCP client's handshake with the kernel, or answer the handshake here if there is no kernel."""
        async with self._joining:
            client, result = self._client, None
            client.handshake, client.is_ready = request, False
            if (link := self._link) is not None:
                try:
                    result = await self._begin(link, request)
                except LinkBroken as error:
                    self._refusing = link.kernel if error.kind == "refused" else None
                    await self._drop_link(link, str(error))
            result = no_kernel.with_changes(result or no_kernel.handshake(request.params or {}, self._reason))
            client.version = str(result.get("protocolVersion"))
            await self._send(make(id=request.id, result=result))

    async def _handle_request(self, request: Envelope) -> None:
        """Pass a request of the client on to the kernel, or answer the request here if there is no kernel."""
        number, client = cast("RequestId", request.id), self._client
        if len(self._passages) >= MOST:
            await self._send(failure(number, f"{MOST} requests are under way. Wait for their answers."))
            return
        client.remember(request)
        if self._link is None:
            await self._send(no_kernel.answer(request, self._reason))
            client.acknowledged.update({number} & client.listening.keys())
        elif request.method == "logging/setLevel" and "logging" not in self._link.capabilities:
            await self._send(make(id=number, result={}))  # this kernel has no log: the bridge alone uses the level
        else:
            self._pass_on(request, self._link)

    def _pass_on(self, request: Envelope, link: KernelLink) -> None:
        passage = Passage(request, link)
        self._passages[cast("RequestId", request.id)] = passage
        passage.task = self._tasks.create_task(self._carry(passage))

    async def _notify(self, message: Envelope) -> None:
        link, passage = self._link, None
        if message.method == "notifications/initialized":
            self._client.is_ready = True
            if link is not None and not link.is_open:
                await self._send_quietly(self._open(link))
            return
        if (number := message.cancels) is not None:
            self._client.forget(number)
            passage = self._passages.get(number)
        is_stateless = passage is not None and passage.request.version is not None
        if link is not None and link.is_open and not is_stateless:
            await self._send_quietly(link.tell(message))
        if passage is not None and passage.task is not None:
            passage.task.cancel()  # closes the HTTP connection, which cancels a stateless request

    async def _answer(self, message: Envelope) -> None:
        """Pass the client's answer to the kernel that sent the question."""
        link, number = self._questions.pop(cast("RequestId", message.id), (None, None))
        if link is not None and link is self._link:
            await self._send_quietly(link.tell(message.with_fields(id=number)))

    async def _send_quietly(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send a message that gets no answer. Only log errors: `_check_kernels` notices if the kernel has ended."""
        try:
            await sending
        except LinkBroken as error:
            _note(with_code(error))

    # Messages of the kernel

    async def _carry(self, passage: Passage) -> None:
        """Send a client's request to the kernel, and pass the messages that come back on to the client."""
        number = cast("RequestId", passage.request.id)
        try:
            async for message in passage.link.ask(passage.request):
                if message.is_answer:
                    await self._settle(passage, message)
                else:
                    await self._deliver(passage.link, message, passage.request)
        except LinkBroken as error:
            await self._fail(passage, error)
        finally:
            if self._passages.get(number) is passage:
                del self._passages[number]

    async def _settle(self, passage: Passage, answer: Envelope) -> None:
        """Pass an answer on to the client, unless the request was cancelled or already answered."""
        number = cast("RequestId", passage.request.id)
        if self._passages.get(number) is passage:
            del self._passages[number]
            self._client.forget(number)
            await self._send(answer)

    async def _fail(self, passage: Passage, error: LinkBroken) -> None:
        """Answer a request with an error, because the kernel's answer did not arrive.

        Give up the link if the kernel or the connection to it has ended, or if the kernel rejected the bridge.
        """
        link, why = passage.link, ""
        if error.kind != "dropped" and await self._has_ended(link.kernel):
            why = _ending(link.kernel)
        elif error.kind in ("ended", "refused"):
            self._refusing, why = link.kernel if error.kind == "refused" else None, str(error)
        if why:  # `_drop_link` runs in its own task, which continues if the client cancels this request
            await asyncio.shield(self._tasks.create_task(self._drop_link(link, why)))
        await self._settle(passage, failure(cast("RequestId", passage.request.id), str(error)))

    async def _has_ended(self, kernel: ServedKernel) -> bool:
        """Return whether a kernel is no longer served; wait up to `ENDING` seconds for its process to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING):
                while kernel in await asyncio.to_thread(kernels.find_all):  # noqa: ASYNC110  (a process tells nobody of its end)
                    await asyncio.sleep(ENDING / 20)
                return True
        return False

    async def _deliver(self, link: KernelLink, message: Envelope, request: Envelope | None = None) -> None:
        """Pass a kernel's request or notification to the client, unless the link to that kernel was given up."""
        if message.is_answer or link is not self._link:
            return
        if message.is_request:
            self._question_count += 1
            number = f"kernel-{self._question_count}"
            self._questions[number] = link, cast("RequestId", message.id)
            await self._send(message.with_fields(id=number))
        elif (cancelled := message.cancels) is not None:
            for number in [ours for ours, theirs in self._questions.items() if theirs == (link, cancelled)]:
                del self._questions[number]
                await self._send(message.with_fields(params={**(message.params or {}), "requestId": number}))
        elif message.method == _ACKNOWLEDGED and request is not None:
            await self._acknowledge(request, message)
        else:
            await self._send(message)

    async def _acknowledge(self, request: Envelope, message: Envelope) -> None:
        """Tell the client that a subscription is open.

        If the client knows that already, a new kernel has opened the subscription again. That kernel may have other
        tools and resources, so tell the client that their lists changed.
        """
        number = cast("RequestId", request.id)
        if number not in self._client.acknowledged:
            self._client.acknowledged.add(number)
            await self._send(message)
            return
        for kind, name in _CHANGES.items():
            if requested_notifications(request).get(name):
                params = {"_meta": subscription(number)}
                await self._send(make(method=f"notifications/{kind}/list_changed", params=params))

    async def _log(self, level: str, text: str) -> None:
        if self._client.wants(level):
            params = {"level": level, "logger": "agentmagic", "data": text}
            await self._send(make(method="notifications/message", params=params))

    async def _send(self, message: Envelope) -> None:
        await self._pipes.send(message.line)


def _ending(kernel: ServedKernel) -> str:
    what = "is no longer served" if kernel.is_alive else "has ended"
    return f"The kernel of {label(kernel)} {what}. Run %agent serve in it again."


def _note(text: str) -> None:
    """Write a line to the standard error, which MCP clients store in a log."""
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
