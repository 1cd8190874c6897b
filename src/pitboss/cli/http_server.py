"""The process of the HTTP server: `python -m pitboss.cli.http_server SPEC FD`, started by a manager."""

import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn, cast

import msgspec
import uvloop

from pitboss import wiring
from pitboss.config import ServerSpec
from pitboss.http.process import HttpProcess, listen
from pitboss.model.errors import PitbossError
from pitboss.worker.channel import BrokenMessage, encoded
from pitboss.worker.child import die_with_parent, leave

if TYPE_CHECKING:
    from pitboss.engines.protocol import FullStore


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=ServerSpec)
    end = socket.socket(fileno=int(sys.argv[2]))
    die_with_parent(spec.manager, end)
    # Ctrl-C reaches the whole group of processes; the manager decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        listening = listen(spec)
    except OSError as error:
        _broken(end, f"{spec.url} cannot be used: {os.strerror(error.errno) if error.errno else error}")
    # As in `pitboss up`: the event loop and the writer thread of SQLite take turns at the interpreter.
    sys.setswitchinterval(0.0005)
    try:
        uvloop.run(_serve(spec, listening, end))
    except PitbossError as error:
        _broken(end, f"{error.what}: {error.why}")
    leave(0)


async def _serve(spec: ServerSpec, listening: socket.socket, end: socket.socket) -> None:
    store = cast("FullStore", wiring.make_engine(spec.store))
    await store.open()
    try:
        await HttpProcess(spec, wiring.make_server(store, release=spec.release), listening).run(end)
    finally:
        await store.close()


def _broken(end: socket.socket, error: str) -> NoReturn:
    end.sendall(encoded([BrokenMessage(error)]))
    leave(1)


if __name__ == "__main__":
    main()
