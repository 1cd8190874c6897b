"""The calls to a store and their answers, in order: what `pitboss.testing.checker` checks.

Every call leaves an `invoke` entry when it begins, and at most one more when it ends: `ok` with the answer, `fail` if
it surely did not happen, `info` if that is unknown. A process that is killed leaves its last call without an end; that
means the same as `info`.
"""

import os
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple, Self

import msgspec

from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, Lane, NewBatch
from pitboss.model.duration import Moment, Span
from pitboss.model.filter import Filter
from pitboss.model.ids import TaskId
from pitboss.model.pool_slot import PoolSlot
from pitboss.model.queue import Changed, Queue, QueueChange
from pitboss.model.resource import Leased, NewResource, PoolRules, Report, ResourceChange, Shortage, UseEnd, Want
from pitboss.model.session import Claimed, ClaimRequest, Lead, Reclaimed, Renewal, Session, SessionInfo
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.task import NewTask, Placed, Token

Phase = Literal["invoke", "ok", "fail", "info"]
FOREVER = 1 << 62


class _Act(msgspec.Struct, frozen=True, kw_only=True, tag=str.lower):
    """A call to the store. The entry that ends the call has the answer too."""


class Put(_Act, frozen=True, kw_only=True):
    tasks: tuple[NewTask, ...]
    placed: tuple[Placed, ...] = ()


class Claim(_Act, frozen=True, kw_only=True):
    request: ClaimRequest
    claimed: Claimed | None = None


class Renew(_Act, frozen=True, kw_only=True):
    session: int
    renewal: Renewal | None = None


class Settle(_Act, frozen=True, kw_only=True):
    settlements: tuple[Settlement, ...]
    answers: tuple[SettleAnswer, ...] = ()


class Reclaim(_Act, frozen=True, kw_only=True):
    limit: int
    reclaimed: Reclaimed | None = None


class OpenSession(_Act, frozen=True, kw_only=True):
    info: SessionInfo
    session: Session | None = None


class EndSession(_Act, frozen=True, kw_only=True):
    session: int


class Cancel(_Act, frozen=True, kw_only=True):
    wanted: Filter
    changed: Changed | None = None


class Retry(_Act, frozen=True, kw_only=True):
    wanted: Filter
    changed: Changed | None = None


class Prune(_Act, frozen=True, kw_only=True):
    wanted: Filter
    changed: Changed | None = None
    term: int | None = None


class Campaign(_Act, frozen=True, kw_only=True):
    session: int
    lead: Lead | None = None


class Resign(_Act, frozen=True, kw_only=True):
    session: int


class TakeSlots(_Act, frozen=True, kw_only=True):
    session: int
    pool: str
    node: str
    places: tuple[int, ...]
    queues: tuple[str, ...] | None = None
    slots: tuple[PoolSlot, ...] | None = None


class Assign(_Act, frozen=True, kw_only=True):
    queue: str
    owners: dict[str, str]
    term: int
    moved: int | None = None


class ChangeQueue(_Act, frozen=True, kw_only=True):
    name: str
    change: QueueChange
    queue: Queue | None = None


class DeclarePool(_Act, frozen=True, kw_only=True):
    name: str
    rules: PoolRules


class AddResources(_Act, frozen=True, kw_only=True):
    pool: str
    members: tuple[NewResource, ...]


class ChangeResources(_Act, frozen=True, kw_only=True):
    """`names` None stands for all members; `change` None removes them."""

    pool: str
    names: tuple[str, ...] | None
    change: ResourceChange | None


class Acquire(_Act, frozen=True, kw_only=True):
    pool: str
    want: Want
    hold: Span
    lease: str
    leased: Leased | None = None
    shortage: Shortage | None = None


class Release(_Act, frozen=True, kw_only=True):
    lease: str
    report: Report | None
    use_end: UseEnd | None = None
    released: bool | None = None


class Extend(_Act, frozen=True, kw_only=True):
    lease: str
    hold: Span
    until: Moment | None = None


class Use(_Act, frozen=True, kw_only=True):
    """`used` is the moment of the use, None if there was none; `instead` is the moment of the use that it replaces."""

    holder: Token | str
    task: TaskId | None
    instead: Moment | None = None
    ends: UseEnd | None = None
    used: Moment | None = None


class EndUse(_Act, frozen=True, kw_only=True):
    holder: Token | str
    task: TaskId | None
    end: UseEnd


class CreateBatch(_Act, frozen=True, kw_only=True):
    batch: NewBatch
    items: tuple[NewTask, ...]
    created: Batch | None = None


class ActOnBatch(_Act, frozen=True, kw_only=True):
    batch: BatchId
    act: BatchAct
    changed: BatchChanged | None = None


class ChangeLane(_Act, frozen=True, kw_only=True):
    name: str
    max_running: int
    lane: Lane | None = None


class ReadBatches(_Act, frozen=True, kw_only=True):
    """A read of all batches at one moment: it proves which of them run together."""

    batches: tuple[Batch, ...] = ()


Act = (
    Put
    | Claim
    | Renew
    | Settle
    | Reclaim
    | OpenSession
    | EndSession
    | Campaign
    | Resign
    | Cancel
    | Retry
    | Prune
    | TakeSlots
    | Assign
    | ChangeQueue
    | DeclarePool
    | AddResources
    | ChangeResources
    | Acquire
    | Release
    | Extend
    | Use
    | EndUse
    | CreateBatch
    | ActOnBatch
    | ChangeLane
    | ReadBatches
)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The beginning or the end of a call. `at` is the store's time, if the recorder knows it."""

    order: int
    process: str
    call: int
    phase: Phase
    act: Act
    at: Moment | None = None
    error: str | None = None


class Call(NamedTuple):
    """A call from its beginning to its end. A call without a known end may take effect at any time after it began."""

    process: str
    begun: int
    ended: int
    phase: Phase
    act: Act
    asked_at: Moment | None
    answered_at: Moment | None
    error: str | None

    @property
    def answered(self) -> bool:
        return self.phase == "ok"

    @property
    def unknown(self) -> bool:
        return self.phase in {"info", "invoke"}


class History:
    """Entries in memory and, with a file, also on disk: one write per entry, so that a killed process loses none.

    `order` numbers the entries. The default counts, which is enough for one process. Several processes on one host need
    a shared clock that never goes back, such as `time.monotonic_ns`, and a file each; `read` merges the files.
    """

    def __init__(self, *, order: Callable[[], int] | None = None, file: Path | None = None) -> None:
        self.entries: list[Entry] = []
        self._order: Callable[[], int] = order or count(1).__next__
        self._last = 0
        self._calls = count(1)
        self._fd = None if file is None else os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._encoder = msgspec.json.Encoder()

    @classmethod
    def read(cls, *files: Path) -> Self:
        """The histories of several processes as one."""
        history = cls()
        decoder = msgspec.json.Decoder(Entry)
        for file in files:
            # Drop what follows the last line end: the process died while writing it.
            history.entries += [decoder.decode(line) for line in file.read_bytes().split(b"\n")[:-1]]
        history.entries.sort(key=lambda entry: entry.order)
        history._last = max((entry.order for entry in history.entries), default=0)
        history._order = count(history._last + 1).__next__
        return history

    def begin(self, process: str, act: Act, at: Moment | None = None) -> int:
        """Note that a call begins. Returns the number to pass to `end`."""
        call = next(self._calls)
        self._add(Entry(order=self._next(), process=process, call=call, phase="invoke", act=act, at=at))
        return call

    def end(
        self, process: str, call: int, phase: Phase, act: Act, at: Moment | None = None, error: str | None = None
    ) -> None:
        self._add(Entry(order=self._next(), process=process, call=call, phase=phase, act=act, at=at, error=error))

    def calls(self) -> list[Call]:
        """The calls in the order in which they began."""
        return _paired(self.entries)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _next(self) -> int:
        self._last = max(self._last + 1, self._order())
        return self._last

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self._fd is not None:
            os.write(self._fd, self._encoder.encode(entry) + b"\n")


def _paired(entries: Iterable[Entry]) -> list[Call]:
    begun: dict[tuple[str, int], Entry] = {}
    ended: dict[tuple[str, int], Entry] = {}
    for entry in entries:
        (begun if entry.phase == "invoke" else ended)[entry.process, entry.call] = entry
    return [_call(entry, ended.get(key)) for key, entry in begun.items()]


def _call(begun: Entry, ended: Entry | None) -> Call:
    sure = ended is not None and ended.phase != "info"
    return Call(
        process=begun.process,
        begun=begun.order,
        ended=ended.order if ended is not None and sure else FOREVER,
        phase=ended.phase if ended is not None else "invoke",
        act=ended.act if ended is not None else begun.act,
        asked_at=begun.at,
        answered_at=ended.at if ended is not None and sure else None,
        error=ended.error if ended is not None else None,
    )


__all__ = ["FOREVER", "Act", "Call", "Entry", "History"]
