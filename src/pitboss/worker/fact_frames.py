"""What manager and hook process say to each other, in the frames of `frames.py`.

From the manager: `fact`, `drain`, `answer`. From the hook process: `ready`, `broken`, `handled`, `heartbeat`, `ask`.
"""

import msgspec

from pitboss.model.facts import AnyFact
from pitboss.worker.frames import (
    AnswerMessage,
    AskMessage,
    BrokenMessage,
    Codec,
    DrainMessage,
    HeartbeatMessage,
    ReadyMessage,
)


class FactMessage(msgspec.Struct, frozen=True, array_like=True, tag="fact"):
    """Something happened that a hook wants to hear of."""

    fact: AnyFact


class HandledMessage(msgspec.Struct, frozen=True, array_like=True, tag="handled"):
    """The hooks of one fact have ended, `failed` of them badly: there is room for another fact."""

    failed: int = 0


ToHooks = FactMessage | DrainMessage | AnswerMessage
FromHooks = ReadyMessage | BrokenMessage | HandledMessage | HeartbeatMessage | AskMessage


def hooks_codec() -> Codec[ToHooks]:
    """Reads what a manager says to its hook process."""
    return Codec(msgspec.msgpack.Decoder(list[ToHooks]).decode)


def hub_codec() -> Codec[FromHooks]:
    """Reads what a hook process says."""
    return Codec(msgspec.msgpack.Decoder(list[FromHooks]).decode)
