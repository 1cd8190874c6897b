"""Sources: foreign queues of a message broker whose messages become tasks, and what goes back to the broker.

A source names the broker's queue and the handler. A message is stored as a task before it is acknowledged. What goes
out (dead letters, `app.publish_to`) is a task of the source's outbox, a reserved handler with a queue of the same name:
it is stored with what causes it, and tried again until the broker has confirmed it.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import msgspec

from pitboss.model.alert_message import ChannelSpec, is_alert_handler
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.policy import Backoff, Policy
from pitboss.model.queue import RESERVED, HandlerInfo

_OUTBOX = f"{RESERVED}outbox."
_MESSAGE = f"{RESERVED}source/"
DLQ_SUFFIX = "_dlq"
PREFETCH = 500
DEDUPE: Span = 3600 * SECOND
# Messages to a broker are tried again without an end: until it takes them, or an operator cancels them.
POLICY = Policy(max_attempts=1_000_000_000, backoff=Backoff(base=SECOND, factor=2.0, cap=4 * SECOND))

KNOWN_FAILED = "had the id of a task that has failed, and did not run it again: pitboss dead list"
COUNTS_RETURNS = "a quorum queue with a delivery limit counts each return, and drops a message after the last"


class SourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The table [sources.NAME].

    `queue` is the broker's; the handler's policy decides ours. `dedupe` is how long the id of a message is remembered
    (0: not at all). `competing`: every manager consumes, and the order is not kept; otherwise one does at a time.
    `create` makes the broker's queue if it does not exist; an existing one is used as it is.
    """

    name: str
    url: str
    queue: str
    handler: str
    dead_letter_queue: str
    prefetch: int = PREFETCH
    dedupe: Span = DEDUPE
    competing: bool = False
    create: Literal["classic", "quorum"] | None = None

    @property
    def outbox(self) -> str:
        return outbox(self.name)

    def outbox_info(self, app: str) -> HandlerInfo:
        """The reserved handler as it is registered by this app. Its tasks are not run by worker pools, and it gets the
        tasks that the source's handler has failed."""
        # SQLite finds handlers that something follows from by the text "dead_letters".
        about = {
            "dead_letters": [],
            "dead_letters_of": [self.handler],
            "source": self.name,
            "app": app,
            "dedupe": self.dedupe,
        }
        return HandlerInfo(
            name=self.outbox,
            queue=self.outbox,
            policy=msgspec.json.encode(POLICY).decode(),
            remote=True,
            about=msgspec.json.encode(about).decode(),
        )


class DeliverySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager tells its delivery process: sources of messages, and channels of alerts. It has passwords: do not
    show it."""

    store: str
    sources: tuple[SourceSpec, ...] = ()
    channels: tuple[ChannelSpec, ...] = ()
    manager: int = 0

    def reserved(self, app: str) -> list[HandlerInfo]:
        """The reserved handlers whose tasks the process sends."""
        return [one.outbox_info(app) for one in self.sources] + [one.info(app) for one in self.channels]


class SourceState(StrEnum):
    """What a source, or the outbox of one, is doing. All but the first three need a person or a server."""

    STARTING = "starting"
    RUNNING = "running"
    STANDBY = "standby"
    FULL = "full"
    AWAY = "away"
    REFUSED = "refused"
    MISSING = "missing"
    IN_USE = "in use"
    BLOCKED = "blocked"
    UNROUTABLE = "unroutable"
    REJECTED = "rejected"
    NO_HANDLER = "no handler"
    STORE = "store"
    SILENT = "silent"


class SourceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One source of a manager, as other hosts see it. `why` says what is wrong, and what helps. `ready` is how many
    messages wait in the broker's queue, if it is connected. `out_some`: the outbox has trouble with some messages, and
    publishes others. `pid` and `manager` are process ids.

    Counted since its process started: messages that were `received`, `stored` as tasks (malformed ones too, for the
    dead-letter queue), met a known id (`duplicates`; `known_failed`: that of a task that has failed), were dead letters
    whose task runs again (`retried`), were `malformed` (the last one at `malformed_at`, because of `malformed_why`),
    were given back to the broker (`requeued`); messages that the broker confirmed (`published`).
    """

    name: str
    queue: str
    handler: str
    state: SourceState = SourceState.STARTING
    why: str = ""
    since: Moment = 0
    out_state: SourceState = SourceState.STARTING
    out_why: str = ""
    out_some: bool = False
    received: int = 0
    stored: int = 0
    duplicates: int = 0
    known_failed: int = 0
    retried: int = 0
    malformed: int = 0
    malformed_why: str = ""
    malformed_at: Moment = 0
    requeued: int = 0
    published: int = 0
    ready: int | None = None
    pid: int = 0
    manager: int = 0


def outbox(source: str) -> str:
    """The reserved handler, and its queue, whose tasks are messages to that source's broker."""
    return f"{_OUTBOX}{source}"


def source_of(outbox_name: str) -> str:
    """The source that an outbox belongs to."""
    return outbox_name.removeprefix(_OUTBOX)


def message_key(source: str, message_id: str) -> str:
    """The unique key of a task that was a message. It has the whole id: messages whose ids differ at the end are
    different. No handler's name begins as it does."""
    return f"{_MESSAGE}{source}/{message_id}"


def key_source(unique_key: str | None) -> str | None:
    """The source that remembers this key as the id of a message; None for other keys."""
    if unique_key is None or not unique_key.startswith(_MESSAGE):
        return None
    return unique_key.removeprefix(_MESSAGE).partition("/")[0]


def dedupe_periods(handlers: Iterable[HandlerInfo]) -> dict[str, Span]:
    """How long each source remembers the ids of messages, as its outbox is registered."""
    return {
        source_of(one.name): msgspec.json.decode(one.about).get("dedupe", DEDUPE)
        for one in handlers
        if is_outbox(one.name)
    }


def is_sent(handler: str) -> bool:
    """Whether a delivery process sends the tasks of this handler."""
    return is_outbox(handler) or is_alert_handler(handler)


def is_outbox(handler: str) -> bool:
    return handler.startswith(_OUTBOX)
