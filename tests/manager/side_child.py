"""A program for a side process, which has nothing to do with hooks: it does what its spec and its messages say."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import msgspec

from pitboss.worker.channel import BrokenMessage, Channel, Codec, DrainMessage, HeartbeatMessage, ReadyMessage, encoded
from pitboss.worker.child import die_with_parent, leave


class SideSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`at_start` is done before the process is ready; `name` is what it answers to "who"."""

    manager: int
    name: str = "first"
    at_start: str = ""


class Order(msgspec.Struct, frozen=True, array_like=True, tag="order"):
    """What the process should do."""

    text: str


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """What the process has to say."""

    text: str


ToSide = Order | DrainMessage
FromSide = ReadyMessage | BrokenMessage | HeartbeatMessage | Answer


def from_side_codec() -> Codec[FromSide]:
    return Codec(msgspec.msgpack.Decoder(list[FromSide]).decode)


async def serve(spec: SideSpec, end: socket.socket) -> None:
    """Exits after a drain; work that was begun with "work" ends first, with "finish"."""
    over, working = asyncio.Event(), asyncio.Event()
    working.set()
    channel: Channel[ToSide, FromSide]

    def hear(message: ToSide) -> None:
        if isinstance(message, DrainMessage):
            over.set()
        else:
            obey(message.text)

    def obey(text: str) -> None:
        match text:
            case "die":
                os._exit(3)
            case "freeze":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "detach":
                child = subprocess.Popen(["sleep", "60"], start_new_session=True)
                channel.say(Answer(f"detached {child.pid}"))
            case "work":
                working.clear()
                channel.say(Answer("working"))
            case "finish":
                working.set()
            case "who":
                channel.say(Answer(spec.name))
            case _:
                channel.say(Answer(f"heard {text}"))

    channel = await Channel.over(end, Codec(msgspec.msgpack.Decoder(list[ToSide]).decode), hear, over.set)
    channel.say(ReadyMessage(os.getpid()))
    beating = asyncio.create_task(beat(channel))
    await over.wait()
    await working.wait()
    beating.cancel()
    channel.close()


async def beat(channel: "Channel[ToSide, FromSide]") -> None:
    while True:
        channel.say(HeartbeatMessage(0))
        await asyncio.sleep(0.2)


def main() -> None:
    spec = msgspec.json.decode(sys.argv[1], type=SideSpec)
    end = socket.socket(fileno=int(sys.argv[2]))
    die_with_parent(spec.manager, end)
    match spec.at_start:
        case "die":
            os._exit(4)
        case "break":
            end.sendall(encoded([BrokenMessage("no settings")]))
            os._exit(1)
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
    asyncio.run(serve(spec, end))
    leave(0)


if __name__ == "__main__":
    main()
