"""A delivery process of its own that kills itself at a failpoint of its store: `… child SPEC FD FAILPOINT`."""

import asyncio
import os
import signal
import socket
import sys

import msgspec

from pitboss import wiring
from pitboss.model.ids import IdMaker
from pitboss.model.source import DeliverySpec
from pitboss.sources.process import DeliveryProcess
from pitboss.testing.failpoints import Failpoints
from pitboss.worker.child import die_with_parent


async def run(spec: DeliverySpec, end: socket.socket, failpoint: str) -> None:
    failpoints = Failpoints(die=lambda: os.kill(os.getpid(), signal.SIGKILL))
    if failpoint:
        failpoints.plan(failpoint, "kill")
    store = wiring.make_engine(spec.store, failpoint=failpoints)
    await store.open()
    process = DeliveryProcess(
        spec.sources,
        store,
        make_broker=wiring.make_broker,
        make_id=IdMaker(store.clock.now, wiring.randbits()),
        luck=wiring.luck(),
    )
    await process.run(end)
    await store.close()


if __name__ == "__main__":
    told = msgspec.json.decode(sys.argv[1], type=DeliverySpec)
    ours = socket.socket(fileno=int(sys.argv[2]))
    die_with_parent(told.manager, ours)
    asyncio.run(run(told, ours, sys.argv[3]))
