"""Publishes events by their numbers, and goes on where the last one was killed:
`python -m tests.faults.event_publisher URL JOURNAL EVENTS KEYS [NUMBER SECONDS]`

At this number it has these seconds to live until it is killed (SIGKILL), wherever it is then. It writes each number to
the journal when its publish has returned. Events of even keys have ids that follow from their numbers, several in one
call; those of odd keys have idempotency keys. What was under way when it was killed, and some that came before, it
publishes again. An "end" in the journal is the end.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from threading import Timer

from pitboss import wiring
from pitboss.client.client import Client
from pitboss.client.events import EventClient, new_event
from pitboss.engines.protocol import Store
from pitboss.model.event import EventId
from pitboss.model.ids import IdMaker, make_id

AT_ONCE = 3
# That many events that had been published are published again after a kill.
AGAIN = 5
_MILLIS = 1_790_000_000_000
_END = b"\nend\n"


def name_of(number: int) -> str:
    return "order.paid" if number % 2 else "order.placed"


def key_of(number: int, keys: int) -> str:
    """Neighbours have the same key, so that one call may have several events of it."""
    return f"k{number // AT_ONCE % keys}"


def has_own_id(number: int, keys: int) -> bool:
    return number // AT_ONCE % keys % 2 == 0


def own_id(number: int) -> EventId:
    """Grows with the number; events of one call have the same millisecond."""
    return make_id(_MILLIS + number // AT_ONCE, number % AT_ONCE, number)


def published(journal: Path) -> dict[int, EventId]:
    """The numbers whose publish has returned, with the events' ids. A line that a kill cut short does not count."""
    whole = journal.read_text().rpartition("\n")[0].splitlines() if journal.exists() else []
    return {int(number): event for number, event in (line.split() for line in whole if " " in line)}


def has_ended(journal: Path) -> bool:
    if not journal.exists():
        return False
    with journal.open("rb") as told:
        told.seek(max(0, journal.stat().st_size - len(_END)))
        return told.read() == _END


class Fate:
    """Kills this process soon after it comes to a number."""

    def __init__(self, number: str = "-1", seconds: str = "0") -> None:
        self._number, self._seconds = int(number), float(seconds)

    def strike(self, numbers: range) -> None:
        if self._number in numbers:
            Timer(self._seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()


async def publish(store: Store, journal: Path, events: int, keys: int, fate: Fate) -> None:
    clock = wiring.SystemClock()
    client = EventClient(Client(store, clock), IdMaker(clock.now, wiring.randbits()))
    done = published(journal)
    start = (max(done, default=-1) + 1) // AT_ONCE * AT_ONCE
    with journal.open("a", buffering=1) as told:
        told.write("\n")
        for first in range(max(0, start - AGAIN * AT_ONCE), events, AT_ONCE):
            numbers = range(first, min(events, first + AT_ONCE))
            fate.strike(numbers)
            for number, event in zip(numbers, await one_call(client, numbers, keys), strict=True):
                told.write(f"{number} {event}\n")
        told.write("end\n")


async def one_call(client: EventClient, numbers: range, keys: int) -> list[EventId]:
    key = key_of(numbers[0], keys)
    if has_own_id(numbers[0], keys):
        new = [new_event(own_id(number), name_of(number), {"number": number}, key=key) for number in numbers]
        return [one.id for one in await client.publish_events(new)]
    return [
        (await client.publish(name_of(number), {"number": number}, key=key, idempotency_key=f"n{number}")).id
        for number in numbers
    ]


async def main(url: str, journal: str, events: str, keys: str, *fate: str) -> None:
    store = wiring.make_engine(url)
    await store.open()
    await publish(store, Path(journal), int(events), int(keys), Fate(*fate))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
