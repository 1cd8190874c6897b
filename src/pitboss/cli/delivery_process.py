"""The delivery process: `python -m pitboss.cli.delivery_process SPEC FD`, started by a manager."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

import msgspec
import uvloop

from pitboss import wiring
from pitboss.engines.protocol import Store
from pitboss.model.errors import PitbossError, StoreUnavailable
from pitboss.model.ids import IdMaker
from pitboss.model.source import DeliverySpec
from pitboss.sources.process import DeliveryProcess
from pitboss.worker.channel import BrokenMessage, encoded
from pitboss.worker.child import die_with_parent, leave

_STORE_SECONDS = 2.0


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=DeliverySpec)
    end = socket.socket(fileno=int(sys.argv[2]))
    die_with_parent(spec.manager, end)
    # Ctrl-C reaches the whole group of processes; the manager decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.CRITICAL)
    sys.setswitchinterval(0.0005)
    try:
        uvloop.run(_run(spec, end))
    except PitbossError as error:
        end.sendall(encoded([BrokenMessage(f"{error.what}: {error.why}")]))
        leave(1)
    leave(0)


async def _run(spec: DeliverySpec, end: socket.socket) -> None:
    store = wiring.make_engine(spec.store)
    try:
        process = DeliveryProcess(
            spec.sources,
            store,
            make_broker=wiring.make_broker,
            make_id=IdMaker(store.clock.now, wiring.randbits()),
            luck=wiring.luck(),
            manager=spec.manager,
            channels=spec.channels,
        )
        await process.run(end, partial(_open, store))
    finally:
        await store.close()


async def _open(store: Store, tell: Callable[[str], None]) -> None:
    """Wait for a store that is away: the manager gives up a process that says it is broken."""
    while True:
        try:
            return await store.open()
        except StoreUnavailable as error:
            tell(f"the delivery process waits for the store: {error.what}")
            await asyncio.sleep(_STORE_SECONDS)


if __name__ == "__main__":
    main()
