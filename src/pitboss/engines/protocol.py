"""What every engine promises. The conformance suite in `pitboss.testing` proves it; change the contract there first.

All verbs are async, take lists, and answer in the order of the list. The size of a list changes speed, never meaning.
A call happens as a whole or not at all. A call that raises `StoreUnavailable` may or may not have happened: repeating
it is safe. The store's clock decides (tests may inject one). It is steady: a host or server whose clock is set changes
nothing but the tasks with `run_at` or `expires_at`, which are times of the wall clock; the next claim or reclaim moves
them. Any event loop in which the engine was opened may make any call.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pitboss.engines.access_protocol import Access
from pitboss.engines.alert_protocol import Alerts
from pitboss.engines.batch_protocol import Batches
from pitboss.engines.declared_protocol import Declarations, Events, LeaderActs, Schedules
from pitboss.engines.figure_protocol import Figures
from pitboss.engines.happening_protocol import Happenings
from pitboss.engines.operation_protocol import Operations
from pitboss.engines.partition_protocol import Partitions
from pitboss.engines.resource_protocol import Leases, ResourcePools, Resources
from pitboss.engines.verb_marks import open_to_workers
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import StoreUnavailable
from pitboss.model.event import NewEvent
from pitboss.model.failure import FailureCount
from pitboss.model.filter import Count, Filter
from pitboss.model.finding import Finding
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish
from pitboss.model.session import Claimed, ClaimRequest, Lead, Reclaimed, Renewal, Session, SessionInfo
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.task import Attempt, NewTask, Placed, Task, TaskChange
from pitboss.model.usage import StoreUsage

# How many tasks a call of `Ledger` looks at.
MOST_READ = 20_000


class Clock(Protocol):
    """Two clocks, both in microseconds since the epoch."""

    def now(self) -> Moment:
        """The steady clock: it is never set, and only goes on. All stored moments are by this clock."""

    def wall(self) -> Moment:
        """The clock that people read and set. Only times that people gave (`run_at`, `expires_at`) follow it."""


@runtime_checkable
class HostClock(Clock, Protocol):
    """A clock whose steady time is the uptime of a host plus an offset. An engine may set the offset when it opens."""

    boot_id: str

    def uptime(self) -> Span: ...

    def set_offset(self, offset: Span) -> None: ...


class Failpoint(Protocol):
    """Tests only: the engine calls it with the name of a place in the code, and it may raise, kill or delay."""

    def __call__(self, name: str) -> None: ...


class Page(NamedTuple):
    """Some tasks, and the cursor for the next page (None: this is the last). `covered`: it ended early, because enough
    tasks had been looked at; it has all that match among those put from then on (oldest first: until then)."""

    tasks: list[Task]
    next: str | None
    covered: Moment | None = None


@runtime_checkable
class Engine(Protocol):
    """The six verbs, and opening and closing. `clock` is the store's clock as this process knows it."""

    name: str
    clock: Clock

    async def open(self) -> None:
        """Connect, and create the current schema in a new store. Refuse a store of a newer version."""

    async def close(self) -> None:
        """Finish running calls and disconnect. Harmless to repeat."""

    @open_to_workers
    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        """Store tasks durably: once the call returns, they survive anything.

        Each task is created, or meets an existing one: the same id (so repeating a put is harmless, whatever happened
        to the task since), or the same unique key while that is taken. A key without a period is taken while its task
        is unfinished; a key with a period is taken until that period after the put is over, finished or not. Two tasks
        of one call may meet each other. A new task is `held` (reason "handler") if its handler is not registered,
        else `scheduled` if it is due later, else `pending`. If the created tasks do not fit a queue's capacity (which
        counts held, scheduled and pending tasks), the call raises `QueueFull` and writes nothing. An unknown queue is
        created. After the commit, the engine rings the queues of created tasks that are pending.

        Tasks with one `order_key` run one at a time. The first unfinished one with its key is in line as usual; the
        others are `held` (reason "order"). The act that ends the first one, whatever its end, lets the one that was put
        next (by the store's clock, then by its id) wait as a new task would. Retries and losses keep the place. A
        retried task stands behind the first one, if another has become that. Items of batches have no order key.
        """

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Hand tasks to a live session, each at most once; `SessionLost` if the session is not alive.

        First, scheduled tasks of these queues whose time has come become pending. Then each slot in order takes up to
        `free` pending tasks of its queues (None: all queues), lowest priority number first, then smallest id, over all
        its queues together. A slot without named queues leaves out queues of which all handlers are remote. A slot with
        `handlers` takes only tasks of these; it passes by others without a judgement. A slot with an `order` goes
        through its first `ORDERED` pending tasks in that order instead. Beyond that it takes up to `ahead` more, but
        only tasks that were never lost, of queues without a rate. Paused queues give nothing. A queue with a rate gives
        only what every window still allows; each claim is a start, and stays counted whatever its outcome. A task past
        its expiry is cancelled instead (reason "expired"), and followed as a failed task is (see `settle`). A task
        whose handler is not among the request's handlers is passed by; if it is not remote, and no live session knows
        it (`SessionInfo.handlers`), it becomes held (reason "handler"). An engine treats expired and unknown tasks so
        where it meets them on its way to the tasks it gives, and may leave others to a later claim. A claimed task is
        `running` with the next claim number; reason, progress and note are cleared. `next_due` is the earliest moment
        at which a scheduled task of these queues falls due, or a window of a queue with pending tasks opens (paused
        queues do not count); None if there is no such moment.

        A slot that says how long a claim `lasts` makes claims of remote workers: each has a time limit of its own,
        `claim_expires_at`, and lives by that, whatever happens to the session. Its `worker` is recorded in the task. If
        its key `repeat` is given and claims under this key still run, the slot gets exactly these again, and no others:
        their answer was lost.

        A queue that is bound to a resource pool gives each task only together with a member of that pool, in the same
        act: see `Resources`. Items of batches are drawn first: see `Batches`. A queue with partitions gives each slot
        its own: see `Partitions`.
        """

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        """Extend a live session by its time to live; a snapshot, if given, replaces the old one.

        The answer names those of its claims that an operator asked to cancel (every time, until they are settled), and
        the newest version of desired state. A dead session gets `alive=False`, and nothing changes.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """Write the outcomes of claims, each as a whole: state, attempt, counters, follow-up tasks, unique key.

        `model.settlement` has the rule. A settlement is applied only if the task is running under exactly this token
        and the claim lives: its session is alive, or its own time limit, if it has one, is not over (swept or not);
        else it is refused and nothing of it is written. Repeating an applied settlement is answered as applied and
        writes nothing, until the task is claimed again. A transition to `running` only reports progress; the claim goes
        on, and its own time limit starts again. A refusal does not affect the other settlements. They take effect one
        after the other: those of one task in the order of the list, others in the engine's order. A task that an
        operator asked to cancel becomes cancelled instead of waiting again. A finished state counts as an attempt;
        waiting counts only if the transition is charged. A run that ends in waiting is recorded in the history if the
        transition says so; a run that finishes the task always is. Follow-up tasks are put in the same act, as `put`
        would, except that they may overfill a queue. A task that becomes failed is followed by those of
        `failure.failure_tasks`, put in the same way; here, in `reclaim`, and in `claim`. The end of a claim gives its
        resource back in the same act, with the settlement's report and the end of its use; see `Resources`. Resources
        are given back in the order of the list. A task of a batch that is not running becomes held instead of waiting;
        see `Batches`."""

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        """Repair what dead sessions and interrupted callers left behind, at most about `limit` tasks per call.

        Running tasks of dead sessions become pending (recorded as lost, no attempt spent), or cancelled if an operator
        asked for that. So do those whose claim is past its own time limit, which also counts as a crash; the third one
        makes the task failed (`settlement.lost`). Their resources are given back without a report, and so are leases
        past their time. Held tasks whose handler is registered and known to a live session are released. Lanes with a
        free slot promote their next batch. Batches that are being cancelled get their waiting items cancelled."""

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        """Return True once one of the queues (None: any) is rung, False after the timeout. This is only a hint: rings
        may be lost or false. A ring since this engine's last wait counts, so that none is missed between claim and
        wait."""


@runtime_checkable
class Sessions(Protocol):
    """Who works on this store, and is still alive."""

    async def open_session(self, info: SessionInfo) -> Session:
        """Open a new session, alive for its time to live. Held tasks are released if their handler is registered and
        among its handlers."""

    async def end_session(self, session: int) -> None:
        """End a session now: its owner closes it, or a successor on the same host has proved it dead. `reclaim` takes
        back at once what it still held. Harmless to repeat."""

    @open_to_workers
    async def sessions(self) -> list[Session]:
        """The live sessions, and those that ended within the last hour."""


@runtime_checkable
class Leader(Protocol):
    """One session at a time leads, for the duties that one should do for all.

    A term begins when a session takes the lead, and ends for good when that session resigns, is ended, or expires by
    the store's clock. Then no session leads until the next one campaigns. Terms only grow, and none is used twice. A
    call that takes a `term` is fenced: it happens only while that very term lasts, which is checked in the same act as
    the write, so that no later term begins before the write is done. A leader that was paused or cut off for longer
    than its session lives learns it from any of these calls: `campaign` raises `SessionLost`, a fenced write raises
    `NotLeader`.
    """

    async def campaign(self, session: int) -> Lead:
        """Take the lead, or learn which session has it. `SessionLost` if this session is not alive.

        If no session leads, this one does from now on, under the next term. The leader itself gets its own term as
        often as it asks, so repeating the call changes nothing. Asking often is cheap.
        """

    async def leader(self) -> Lead | None:
        """Which session leads now; never `mine`. None if no session does."""

    async def resign(self, session: int) -> None:
        """End the term of this session if it leads. Harmless to repeat."""


@runtime_checkable
class Ledger(Protocol):
    """Reading. It never delays the writers, and no call takes longer because more is stored.

    An engine reads the tasks of a filter by an index, as far as it has one: by id and age, state, queue, batch,
    resource, partition, the moment at which they ended; failed tasks by handler and fingerprint. Where the index leads
    to tasks that do not match, or there is none (free text, `args`), it looks at a bounded number of tasks and says so.
    """

    @open_to_workers
    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        """The tasks, in the order asked."""

    @open_to_workers
    async def find(
        self,
        wanted: Filter,
        *,
        limit: int = 50,
        after: str | None = None,
        oldest_first: bool = False,
        most: int = MOST_READ,
    ) -> Page:
        """A page of the matching tasks, newest first or oldest first; `after` is the `next` of the page before. If it
        has looked at `most` tasks, or at `limit` of them if that is more, the page ends there (`covered`)."""

    async def count(self, wanted: Filter, *, most: int = MOST_READ) -> Count:
        """How many tasks match, of the first `most` that it looks at. A filter of only states and queues is answered
        exactly, however many they are."""

    async def failures(self, *, most: int = MOST_READ) -> list[FailureCount]:
        """The failed tasks by fingerprint and handler, in any order. Of each group it counts the newest `most`."""

    @open_to_workers
    async def tasks_before(self, task: TaskId, *, limit: int = 20_000) -> int | None:
        """How many pending tasks of its queue have a lower priority number than this pending task, or the same and a
        smaller id; at most `limit`, so that it costs no more than that. None if it is not pending."""

    async def attempts(self, task: TaskId) -> list[Attempt]:
        """Every recorded run that has ended, oldest first (the last 100)."""


@runtime_checkable
class Control(Protocol):
    """What operators do to tasks, one or many. Each call changes at most `limit` tasks; `more` says that a repeat would
    change others. Cancel, retry and change begin with the oldest task, prune with any."""

    @open_to_workers
    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        """Cancel waiting tasks (`changed`), and mark running ones, so that `renew` tells their session (`asked`)."""

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        """Make failed and cancelled tasks pending again (held if their handler is not registered), due now (`run_at`)
        and without their expiry. Unless attempts are kept, attempts, losses and crashes start from zero. The history
        and the last error stay. A task takes its unique key again while it is unfinished; if another task has the key,
        the task is refused (by id)."""

    @open_to_workers
    async def change_tasks(self, wanted: Filter, change: TaskChange, *, limit: int = 1000) -> Changed:
        """Change held, scheduled and pending tasks (`TaskChange.applied_to`). Those that are so already are not
        counted, so repeating it is harmless. A task keeps its place among those of its new priority by its id."""

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        """Delete finished tasks with their attempts, if they finished before that moment (None: all). A task whose
        unique key is still taken for its period stays. With a term, only the leader of that term may do it (see
        `Leader`): any other call raises `NotLeader` and deletes nothing."""


@runtime_checkable
class Queues(Protocol):
    """Queues: what waits in them, and their limits."""

    @open_to_workers
    async def queues(self) -> list[Queue]:
        """Every queue by name, with its settings, its number of tasks by state (zeros left out), and when its rate
        allows the next start (`opens_at`, from all windows; None if it allows one now, paused or not)."""

    @open_to_workers
    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        """Pause, resume or limit a queue, which is created if it is new. Rings it when it may give more."""


@runtime_checkable
class Handlers(Protocol):
    """The registry of handlers."""

    @open_to_workers
    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        """Add handlers, or replace those of the same name. Held tasks of these handlers are released. The store gives
        each new one the next free `number`, and keeps the times (`HandlerInfo.registered`)."""

    @open_to_workers
    async def handlers(self) -> list[HandlerInfo]:
        """All handlers by name."""

    async def forget(self, names: Iterable[str]) -> None:
        """Remove handlers. Tasks that are put for them from now on are held."""


@runtime_checkable
class Desired(Protocol):
    """What operators want, as versioned keys."""

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        """Set a key to a JSON text (None withdraws it). Returns the store's new version, higher than every earlier
        one. Rings those that wait for all queues."""

    async def wishes(self, since: int = 0) -> list[Wish]:
        """The wishes that changed after that version, in order of version; withdrawn ones have the value None."""


@runtime_checkable
class Schema(Protocol):
    """The store's tables and their version."""

    async def schema_version(self) -> tuple[int, int]:
        """The version that the store has, and the one that this release needs."""

    async def upgrade(self) -> list[str]:
        """Apply the missing migrations, and return their names."""


@runtime_checkable
class Within(Protocol):
    """SQL engines: enqueue and publish inside the caller's own transaction."""

    def put_within(self, connection: Any, tasks: Sequence[NewTask]) -> Any:
        """As `put`, on the caller's connection to the same store; the caller commits or rolls back. Returns what `put`
        returns, or an awaitable of it if the connection is async."""

    def publish_within(self, connection: Any, events: Sequence[NewEvent]) -> Any:
        """As `publish`, on the caller's connection: the events and their tasks are stored with the caller's commit, or
        not at all."""


@runtime_checkable
class Gradual(Protocol):
    """Engines whose `put` reads the tasks of a large call bit by bit: the caller may make them on the way, and an error
    in making one leaves nothing of the call behind."""

    gradual: bool


@runtime_checkable
class Direct(Protocol):
    """Engines that a plain thread can call, without an event loop in between."""

    def put_sync(self, tasks: Sequence[NewTask]) -> list[Placed]:
        """As `put`; returns when the tasks are stored."""


@runtime_checkable
class Outages(Protocol):
    """Engines whose store may go away."""

    def on_trouble(self, told: Callable[[StoreUnavailable], None]) -> None:
        """`told` gets each error of the store at once, from any thread: also of calls that try again by themselves."""

    async def probe(self) -> None:
        """Whether the store takes new calls and writes: `StoreUnavailable` if not. It does not try again. Changes
        nothing."""


@runtime_checkable
class Diagnosis(Protocol):
    """Engines that can check whether their store can keep these promises."""

    async def diagnose(self, clock: Clock) -> list[Finding]:
        """What is in order and what is not: durability, free space, versions, and the difference between `clock`, this
        host's, and the store's own. Changes nothing."""


@runtime_checkable
class Maintenance(Protocol):
    """Engines whose store can be damaged, and can be copied while it is in use. None of these needs an open engine."""

    async def check(self, *, seconds: float | None = None, full: bool = False, counts: bool = True) -> list[Finding]:
        """Whether the content is sound: "content", "indexes" and "counts" (`counts`: compare the numbers of tasks with
        a recount). It stops after `seconds` and says so; `full` takes longer and finds more. Changes nothing."""

    async def recount(self) -> int:
        """Write the numbers of tasks that a recount gives; returns how many were wrong. Holds up writers meanwhile."""

    async def backup(self, to: Path, told: Callable[[int, int], None], *, salvage: bool = False) -> str:
        """Write a copy of the store at this moment into an empty file; returns how to use it. `told` gets how many
        parts of how many are done. A file that is not finished is removed. `salvage`: of a damaged store, what can
        still be read; `Unsupported` if the engine cannot do that."""


@runtime_checkable
class Usage(Protocol):
    """How much room the store takes, and refusing new tasks while that is too much."""

    async def usage(self) -> StoreUsage:
        """The bytes that are in use (what was deleted does not count), the free bytes of the disk if this process can
        know them, and the present reason to refuse."""

    async def refuse_new(self, reason: str | None, *, term: int) -> None:
        """While a reason is set, `put`, `publish` and `create_batch` (of a new batch that has items) raise `StoreFull`
        and write nothing, in every process of this store. All else goes on, with the tasks that follow from it:
        follow-ups, those of schedules and failures, and notices of batches. None ends that. Only the leader of that
        term may do it: any other call raises `NotLeader` and changes nothing."""


class Store(Engine, Sessions, Leader, Ledger, Control, Queues, Handlers, Desired, Protocol):
    """What every engine has."""


@runtime_checkable
class FullStore(
    Store,
    ResourcePools,
    Resources,
    Leases,
    Batches,
    Access,
    Declarations,
    Schedules,
    Events,
    LeaderActs,
    Partitions,
    Operations,
    Usage,
    Alerts,
    Figures,
    Happenings,
    Protocol,
):
    """A store with everything that the conformance suite proves."""


class SqlStore(Store, Schema, Within, Protocol):
    """What every SQL engine has."""
