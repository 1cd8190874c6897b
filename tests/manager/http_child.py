"""A stand-in for the HTTP server: it says what a server says, and does what the release in its settings asks for."""

import asyncio
import os
import socket
import sys

import msgspec

from pitboss.config import ServerSpec
from pitboss.worker.channel import (
    BrokenMessage,
    Channel,
    FromHttp,
    HeartbeatMessage,
    ListeningMessage,
    ReadyMessage,
    ToHttp,
    encoded,
    http_codec,
)
from pitboss.worker.child import die_with_parent, leave


async def serve(spec: ServerSpec, end: socket.socket) -> None:
    """Until a drain. Its address shows the store that it was told."""
    over = asyncio.Event()
    channel: Channel[ToHttp, FromHttp] = await Channel.over(end, http_codec(), lambda _: over.set(), over.set)
    channel.say(ReadyMessage(os.getpid()))
    channel.say(ListeningMessage(f"http://{spec.host}:{spec.port or 4321}/{spec.store}"))
    channel.say(HeartbeatMessage(0))
    if spec.release == "die":
        await asyncio.sleep(0.05)
        os._exit(3)
    await over.wait()
    channel.close()


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=ServerSpec)
    end = socket.socket(fileno=int(sys.argv[2]))
    die_with_parent(spec.manager, end)
    if spec.release == "break":
        end.sendall(encoded([BrokenMessage("port 8000 is taken")]))
        leave(1)
    asyncio.run(serve(spec, end))
    leave(0)


if __name__ == "__main__":
    main()
