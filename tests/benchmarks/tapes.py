"""What replay costs: CPU of each event that is replayed and checked, of a turn that is recorded, loading a cassette."""

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from agentmagic import Agent, ScriptedModel, Session
from agentmagic.export import save
from agentmagic.replay.cassette import Cassette

TURNS = 50
DOCUMENTS = 1_000
EARLY, LATE, AROUND = 25, 200, 10
"""Turns before one that is recorded, and turns of which the median is taken."""
SHORT = "It is sunny in City {}."
LONG = "The revenue of this quarter was higher than that of the one before, by about a tenth. " * 8
PROMPT = "What is the weather in City {}?"
PROMPTS = [PROMPT.format(number) for number in range(TURNS)]


def look(city: str) -> str:
    """Return the weather of a city."""
    return f"It is sunny in {city}, 21 degrees."


def recorded(path: Path, answer: str) -> float:
    """Record turns with one tool call and such an answer; return the size of the cassette, times that of the export."""
    steps = []
    for number in range(TURNS):
        call = {"calls": [{"name": "look", "arguments": {"city": f"City {number}"}}]}
        steps += [call, answer.format(number)]
    session = Session(Agent(ScriptedModel(steps), tools=[look]), cassette=path, replay="record")
    for prompt in PROMPTS:
        session.ask(prompt)
    page = path.with_suffix(".md")
    save(session.turns, page)
    session.close()
    return path.stat().st_size / page.stat().st_size


def replayed(path: Path) -> float:
    """Return the CPU milliseconds of an event of a replay, in which each request is checked."""
    session = Session(Agent(ScriptedModel([]), tools=[look]), cassette=path, replay="replay")
    began = time.process_time()
    events = sum(len(session.ask(prompt).events) for prompt in PROMPTS)
    took = time.process_time() - began
    session.close()
    return took / events * 1000


def loaded(path: Path) -> tuple[float, float]:
    """Return the CPU seconds to load a thousand documents, and to read each of them too."""
    whole = path.with_name("whole.cassette.yaml")
    head, *takes = path.read_text(encoding="utf-8").split("---\nturn: ")
    text = f"---\nturn: {takes[1]}"
    whole.write_text(head + text * (DOCUMENTS // text.count("---\n")), encoding="utf-8")
    began = time.process_time()
    cassette = Cassette.at(whole)
    took = time.process_time() - began
    for take in cassette.takes:
        assert take.documents
    return took, time.process_time() - began


def grown(path: Path) -> tuple[float, float]:
    """Return the CPU milliseconds of the first turn of a conversation, recorded behind 25 turns, and behind 200."""
    call = {"calls": [{"name": "look", "arguments": {"city": "Oslo"}}]}
    session = Session(Agent(ScriptedModel([call, SHORT] * LATE), tools=[look]), cassette=path, replay="record")
    took: list[float] = []
    for number in range(LATE):
        session.clear()
        began = time.process_time()
        session.ask(PROMPT.format(number))
        took.append((time.process_time() - began) * 1000)
    session.close()
    return median(took[EARLY - AROUND : EARLY + AROUND]), median(took[LATE - 2 * AROUND :])


def main() -> None:
    """Print the table."""
    print(f"\n{'a cassette of 50 turns with a tool call':44}")
    with TemporaryDirectory() as folder:
        short = Path(folder, "short.cassette.yaml")
        for name, path, answer in (("short", short, SHORT), ("long", Path(folder, "long.cassette.yaml"), LONG)):
            size = recorded(path, answer)
            replayed(path)  # loads what a first replay needs
            took = replayed(path)
            print(f"{f'{name} answers, an event replayed':44} {took:9.3f} ms CPU  goal 0.3", flush=True)
            print(f"{'  its size, times its Markdown export':44} {size:9.2f}x        goal 1.2")
        early, late = grown(Path(folder, "grown.cassette.yaml"))
        print(f"{f'a turn recorded behind {EARLY}':44} {early:9.1f} ms CPU")
        print(f"{f'  behind {LATE}, times that':44} {late / early:9.2f}x        goal 1.5", flush=True)
        took, read = loaded(short)
        print(f"{f'loading {DOCUMENTS:,} documents':44} {took:9.3f} s CPU   goal 0.3")
        print(f"{'  and reading each of them':44} {read:9.3f} s CPU")


if __name__ == "__main__":
    main()
