"""A proxy on loopback that adds a bearer token: the conformance suite cannot send one."""

import asyncio
import re
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


async def _pipe(reader, writer):
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()


class TokenProxy:
    """Passes on requests, one on each connection, as they are but for the token and its own port."""

    def __init__(self, url, token):
        self._port = urlsplit(url).port
        self._token = token

    async def serve(self, started, ended):
        tasks = set()

        def connected(reader, writer):
            task = asyncio.ensure_future(self._pass_on(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        async with server:
            await asyncio.to_thread(ended.wait)
            for task in tuple(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, reader, writer):
        outward = up = None
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").replace(f":{self.port}", f":{self._port}")
            first, _, rest = re.sub(r"(?im)^connection:.*\r\n", "", head).partition("\r\n")
            onward, outward = await asyncio.open_connection("127.0.0.1", self._port)
            added = f"Authorization: Bearer {self._token}\r\nConnection: close\r\n"
            outward.write(f"{first}\r\n{added}{rest}".encode("latin-1"))
            up = asyncio.ensure_future(_pipe(reader, outward))
            await _pipe(onward, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if up is not None:
                up.cancel()
            for one in (writer, outward):
                if one is not None:
                    one.close()
                    with suppress(ConnectionError):
                        await one.wait_closed()


@contextmanager
def token_proxy(url, token):
    """Yield the address of a proxy to a server."""
    proxy, started, ended = TokenProxy(url, token), threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(proxy.serve(started, ended)))
    thread.start()
    started.wait()
    try:
        yield f"http://localhost:{proxy.port}{urlsplit(url).path}"
    finally:
        ended.set()
        thread.join()
