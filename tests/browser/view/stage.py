"""The view's test page in headless Chromium: no kernel, no server, and no way off the page."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from playwright.sync_api import Browser, Locator, Page, Route, ViewportSize

from agentmagic.events import Event
from agentmagic.widgets import commands, page_messages
from agentmagic.widgets.sync import Feed
from tests.browser.axe import findings, violations
from tests.browser.lab import ROOT

if TYPE_CHECKING:
    from agentmagic.widgets.view_messages import State

ADDRESS = "http://localhost/"
PAGE = ROOT / "js" / "page"
BUILT = ROOT / "agentmagic" / "widgets" / "static"
TIMEOUT = 30_000
POLL = 50
SIZE: ViewportSize = {"width": 1280, "height": 860}

ALL_ACTIONS = {*commands.INTENTS, *commands.SETUP, *page_messages.SESSION_ACTIONS}


class Stage:
    """Shows feeds in the page, and keeps account of what the page did that it should not."""

    def __init__(self, browser: Browser, built: Path = BUILT) -> None:
        self.built = built
        self._browser = browser
        self._complaints: list[str] = []

    def open(self, *, dark: bool = False, size: ViewportSize = SIZE, motion: bool = False) -> Page:
        """Open the page anew."""
        page = self._browser.new_page(
            viewport=size,
            color_scheme="dark" if dark else "light",
            reduced_motion="no-preference" if motion else "reduce",
        )
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: self._complaints.append(f"raised {error}"))
        page.on("console", lambda line: self._complaints.append(line.text) if line.type == "error" else None)
        page.route("**/*", self._answer)
        page.goto(f"{ADDRESS}index.html{'#dark' if dark else ''}")
        page.wait_for_function("() => window.stage")
        self.page = page
        return page

    def show(self, feed: Feed, home: str = "panel", **state: Any) -> float:
        """Show a feed in one of the two homes, and return the seconds until all of it was drawn."""
        feed.tell(cast("State", {"title": "agent", "actions": sorted(ALL_ACTIONS), **state}))
        snapshot = feed.hello("view", -1)[-1]
        return self.page.evaluate("([home, snapshot]) => stage.show(home, snapshot)", [home, snapshot]) / 1000

    def axe(self) -> list[str]:
        """Return what axe-core finds wrong with the page, if axe-core is there."""
        return findings(violations(self.page))

    def drawn(self) -> None:
        """Wait until the page is drawn."""
        self.page.evaluate("() => stage.drawn()")

    def receive(self, *messages: object, home: str = "panel") -> None:
        """Hand messages to a view, and wait until they are drawn."""
        self.page.evaluate("([home, messages]) => stage.models[home].play(messages)", [home, list(messages)])

    def play_drawn(self, frames: list[Any], home: str = "panel") -> None:
        """Hand frames to a view, each once the one before is drawn."""
        script = """async ([home, frames]) => {
          for (const frame of frames) { stage.models[home].receive(frame); await stage.drawn() }
        }"""
        self.page.evaluate(script, [home, [frame for frame in frames if frame]])

    def play(self, feed: Feed, *events: Event, home: str = "panel", **state: Any) -> None:
        """Show what some events change, and another state around the conversation."""
        if state:
            feed.tell(cast("State", state))
        for event in events:
            feed.feed(event)
        self.receive(feed.frame(), home=home)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def focused(self) -> str:
        """Return what the element says that has the focus, its label or its words, or its name without any."""
        return self.page.evaluate("() => (e => e.ariaLabel || e.innerText || e.localName)(document.activeElement)")

    def complaints(self) -> list[str]:
        """Return, once, what failed in the page, and the addresses that it tried to load and are not its own."""
        complaints, self._complaints = self._complaints, []
        return complaints

    def has_loaded(self, name: str) -> bool:
        """Whether the page tried to load something of this name from elsewhere."""
        return any(line.rstrip("?") == f"loaded http://evil.test/{name}" for line in self._complaints)

    def wait_for(self, happened: Callable[[], bool]) -> bool:
        """Wait until something has happened in the page, and return whether it did."""
        return any(happened() or self.page.wait_for_timeout(POLL) for _ in range(TIMEOUT // POLL))

    def sent(self, home: str = "panel") -> list[dict[str, Any]]:
        """Return what the view sent to the kernel, its hellos left out."""
        messages = self.page.evaluate("home => stage.models[home].sent", home)
        return [message for message in messages if message["type"] != "hello"]

    def _answer(self, route: Route) -> None:
        url = route.request.url
        name = url.removeprefix(ADDRESS).partition("#")[0]
        found = [folder / name for folder in (PAGE, self.built) if (folder / name).is_file()]
        if url.startswith(ADDRESS) and found:
            route.fulfill(path=found[0])
        elif url.endswith("/favicon.ico"):
            route.fulfill(status=204)
        else:
            self._complaints.append(f"loaded {url}")
            route.abort("blockedbyclient")
