"""What every engine promises. The conformance suite in `pitboss.testing` proves it; change the contract there first.

All verbs are async, take lists and answer in the order asked. Size of a list changes speed, never meaning. A call
either happens as a whole or not at all. A call that raises `StoreUnavailable` may or may not have happened: repeating
it is safe. Time is the store's (a clock may be injected for tests). Any call may be made from any event loop the
engine was opened in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from pitboss.model.batch import Batch, BatchAct, BatchChanged, BatchId, BatchStatus, Lane, NewBatch
from pitboss.model.duration import Moment, Span
from pitboss.model.filter import Filter
from pitboss.model.finding import Finding
from pitboss.model.ids import TaskId
from pitboss.model.queue import Changed, HandlerInfo, Queue, QueueChange, Wish
from pitboss.model.resource import (
    Leased,
    NewResource,
    PoolRules,
    Report,
    Resource,
    ResourceChange,
    ResourcePool,
    Shortage,
    Want,
)
from pitboss.model.session import Claimed, ClaimRequest, Lead, Reclaimed, Renewal, Session, SessionInfo
from pitboss.model.settlement import SettleAnswer, Settlement
from pitboss.model.states import State
from pitboss.model.task import Attempt, NewTask, Placed, Task, Token

Verb = TypeVar("Verb", bound=Callable[..., Any])


def open_to_workers(verb: Verb) -> Verb:
    """Mark a verb that handlers may call from inside a worker. A verb without this mark is closed to them."""
    vars(verb)["open_to_workers"] = True
    return verb


class Clock(Protocol):
    """Microseconds since the epoch."""

    def now(self) -> Moment: ...


class Failpoint(Protocol):
    """Called with the name of a place in the code, in tests only; may raise, kill or delay."""

    def __call__(self, name: str) -> None: ...


class Page(NamedTuple):
    """Some tasks and the cursor that continues behind them."""

    tasks: list[Task]
    next: str | None


@runtime_checkable
class Engine(Protocol):
    """The six verbs, and opening and closing. `clock` None is the store's own clock."""

    name: str

    async def open(self) -> None:
        """Connect, and bring a new store to the current schema. Refuses a store of a newer version."""

    async def close(self) -> None:
        """Finish what is under way and disconnect. Harmless to repeat."""

    @open_to_workers
    async def put(self, tasks: Sequence[NewTask]) -> list[Placed]:
        """Store tasks durably; returning means they survive anything.

        Each task is created, or meets an existing one: the same id (so a repeated put is harmless, whatever became of
        the task since), or the same unique key while that is taken. A key without a period is taken while its task is
        unfinished; a key with a period is taken until the period after its put is over, finished or not. Two tasks of
        one call may meet each other. A new task is `held` (reason "handler") while its handler is not registered,
        else `scheduled` while it is due later, else `pending`. If the created tasks do not fit a queue's capacity
        (its held, scheduled and pending tasks), `QueueFull` is raised and nothing of the call is written. An unknown
        queue comes into being. Waiters on the queues of tasks that can run now are rung after the commit.
        """

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Hand tasks to a live session, each at most once; `SessionLost` if the session is not alive.

        First, scheduled tasks of these queues whose time has come become pending. For each slot in order, up to
        `free` pending tasks of its queues (None: all queues) are taken, lowest priority number first, then smallest
        id, over all its queues together. Beyond that, up to `ahead` more, but only tasks that were never lost, of
        queues without a rate. Paused queues give nothing. A queue with a rate gives only what every window still
        allows; each claim is a start, and stays counted whatever comes of it. A task past its expiry is not given but
        cancelled (reason "expired"). A task whose handler is not among the request's handlers is not given; if no
        live session knows the handler (`SessionInfo.handlers`), it becomes held (reason "handler"). An engine sees to
        such tasks where they stand in the way of what it gives and may leave others to a later claim. A claimed task is
        `running`, its claim number one higher; reason, progress and note are cleared. `next_due` is the earliest
        moment at which a scheduled task of these queues falls due or a window of a queue with pending tasks opens
        (paused queues do not count); None if there is no such moment.

        Of a queue that is bound to a resource pool, a task is only given together with a member of that pool, in the
        same act: see `Resources`. Items of batches are drawn first: see `Batches`.
        """

    async def renew(self, session: int, snapshot: str | None = None) -> Renewal:
        """Extend a live session by its time to live, replacing its snapshot if one is given.

        Answers which of its claims somebody asked to cancel (every time, until they are settled), and the newest
        version of desired state. A dead session is told `alive=False` and changed in nothing.
        """

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleAnswer]:
        """Write what came of claims; each one as a whole: state, attempt, counters, follow-up tasks, unique key.

        Applied only if the task is running under exactly this token and the session is alive; else refused and told
        so, and nothing of it is written. Repeating an applied settlement is answered as applied and writes nothing,
        until the task is claimed again. A transition to `running` only reports progress; the claim goes on. One
        refusal does not touch the others. They take effect one after the other: those of one task in the order asked,
        others in the engine's order. A task that somebody asked to cancel does not go back to waiting: it becomes
        cancelled instead. A finished state counts as an attempt, waiting only if the transition is charged. A run that
        ends in waiting is recorded in the history if the transition says so; one that finishes the task always is.
        Follow-up tasks are put in the same act, as `put` would, except that they may overfill a queue. Whatever ends a
        claim gives its resource back in the same act, with the settlement's report; see `Resources`. A task of a batch
        that is not running goes back to held instead of waiting; see `Batches`.
        """

    async def reclaim(self, limit: int = 1000) -> Reclaimed:
        """Sweep: running tasks of dead sessions become pending (recorded as lost, no attempt spent), or cancelled if
        that was asked; held tasks whose handler is registered and known to a live session are released. What they held
        is given back without a report, and so are leases past their time. Lanes with a free slot promote their next
        batch; batches that are being cancelled have their waiting items cancelled. At most about `limit` tasks per
        call."""

    async def wait(self, queues: Sequence[str] | None, timeout: float) -> bool:
        """Return True when rung for one of the queues (None: any), False after the timeout. Only a hint: rings may be
        lost or false. A ring since this engine's last wait counts, so that nothing falls between claim and wait."""


@runtime_checkable
class Sessions(Protocol):
    """Lives in the store."""

    async def open_session(self, info: SessionInfo) -> Session:
        """A new session, alive for its time to live. Held tasks of those of its handlers that are registered are
        released."""

    async def end_session(self, session: int) -> None:
        """Over now: closed by itself, or proved dead by a successor on the same host. What it still held is
        reclaimable at once. Harmless to repeat."""

    async def sessions(self) -> list[Session]:
        """The live ones, and the ended ones of the last hour."""


@runtime_checkable
class Leader(Protocol):
    """Of many sessions on one store one leads, for the duties that one should do for all.

    A term begins when a session takes the lead, and ends for good when that session resigns, is ended, or expires by
    the store's clock; nobody leads then, until the next one campaigns. Terms only grow and none is used twice. A call
    that takes a `term` is fenced: it happens only while that very term lasts, looked at in the same act as it writes,
    so that no later term begins before it is done. A leader that was paused or cut off for longer than its session
    lives learns it from any of these calls: campaigning tells it `SessionLost`, a fenced write `NotLeader`.
    """

    async def campaign(self, session: int) -> Lead:
        """Lead, or be told who does. Every live session may; `SessionLost` if this one is not alive.

        If nobody leads, this session does from now on, under the next term. The leader itself is told its own term
        as often as it asks, so a repeated call changes nothing. Asking often is cheap.
        """

    async def leader(self) -> Lead | None:
        """Who leads at this moment, for whoever wants to know; never `mine`. None if nobody does."""

    async def resign(self, session: int) -> None:
        """If this session leads, its term is over. Otherwise nothing happens: harmless to repeat."""


@runtime_checkable
class Ledger(Protocol):
    """Reading. None of it disturbs the writers."""

    @open_to_workers
    async def get(self, ids: Sequence[TaskId]) -> list[Task | None]:
        """The tasks, in the order asked."""

    @open_to_workers
    async def find(
        self, wanted: Filter, *, limit: int = 50, after: str | None = None, oldest_first: bool = False
    ) -> Page:
        """Matching tasks, newest first, or oldest first; `after` is a page's `next`."""

    async def count(self, wanted: Filter) -> int:
        """How many match."""

    async def attempts(self, task: TaskId) -> list[Attempt]:
        """Every recorded run that has ended, oldest first (the last 100)."""


@runtime_checkable
class Control(Protocol):
    """What operators do to tasks, one or many. Each call changes at most `limit` tasks; `more` asks for a repeat.
    Cancel and retry begin with the oldest task, prune where it likes."""

    @open_to_workers
    async def cancel(self, wanted: Filter, *, reason: str = "", limit: int = 1000) -> Changed:
        """Waiting tasks are cancelled (`changed`); running ones are marked and their session told (`asked`)."""

    async def retry(self, wanted: Filter, *, keep_attempts: bool = False, limit: int = 1000) -> Changed:
        """Failed and cancelled tasks become pending again (held if their handler is not registered), due at once and
        without their expiry. Unless attempts are kept, attempts, losses and crashes start from zero. The history and
        the last error stay. A task takes its unique key again while it is unfinished; one whose key another task has
        is refused (by id)."""

    async def prune(
        self, wanted: Filter, *, before: Moment | None = None, limit: int = 1000, term: int | None = None
    ) -> Changed:
        """Delete finished tasks with their attempts, if they finished before that moment. A task whose unique key is
        still taken for its period stays. With a term, only as the leader of that term (see `Leader`): under any other
        `NotLeader` is raised and nothing is deleted."""


@runtime_checkable
class Queues(Protocol):
    """Lanes."""

    async def queues(self) -> list[Queue]:
        """Every queue by name, with its settings and its number of tasks by state (zeros left out)."""

    async def change_queue(self, name: str, change: QueueChange) -> Queue:
        """Pause, resume, limit; the queue comes into being if need be. Waiters are rung when it may give more."""


@runtime_checkable
class Handlers(Protocol):
    """The registry of handlers."""

    @open_to_workers
    async def register(self, handlers: Iterable[HandlerInfo]) -> None:
        """Add or replace; held tasks of these handlers are released."""

    @open_to_workers
    async def handlers(self) -> list[HandlerInfo]:
        """All of them by name."""

    async def forget(self, names: Iterable[str]) -> None:
        """Remove; tasks put from now on are held."""


@runtime_checkable
class Desired(Protocol):
    """What operators want, as versioned keys."""

    async def wish(self, key: str, value: str | None, *, by: str | None = None) -> int:
        """Set a key to a JSON text (None withdraws it); returns the store's new version, higher than every earlier
        one. Rings for who waits for all queues."""

    async def wishes(self, since: int = 0) -> list[Wish]:
        """The wishes changed after that version, withdrawn ones with value None, in order of version."""


@runtime_checkable
class Resources(Protocol):
    """Pools of scarce things, and how tasks get them.

    A queue is bound to a pool while a registered handler of that queue asks for one (`HandlerInfo.resources`; of
    several such handlers, the first by name). How a member stands is decided by `model.leasing` alone, and which one a
    task is given by `model.picking`: an engine reads, asks there, and writes the answer, all in one act.

    A claim on such a queue goes through its pending tasks in their order. Each gets the first member by the pool's
    strategy (`rank`, then `last_used_at`, then `name`) that is ready and fits: it carries all labels of the task's
    want, and it is not among those that the task avoids (`leasing.avoided` of its `tried`, and the number of enabled
    members with those labels). Giving it is a use (`leasing.granted`), counted whatever comes of it. A member that is
    ready after that can be given again in the same call, at the place that it has then. A want with a key gets the
    member that the key is bound to, whatever the task has tried, and binds it for `bound_for` again; if that one is
    not ready, the task waits, or with `away` "rebind" is bound to another one that it has not tried; if that one is
    gone, disabled, or without the wanted labels, or the binding is past its time, the key is bound anew as other tasks
    choose. Tasks that no member fits are passed by, and those behind them get their turn; an engine may stop looking
    after 1,000 of them. Such tasks are never given ahead. The queue's own rate holds too. A task that is not
    given for want of a member is not changed, and for its pool a `Shortage` says why (`leasing.shortage`, as the
    members stand after the call), one for each pool, by name: its `until`, the earliest `available_at` of the pool's
    members that are away, counts for `next_due`.

    The claim says what was leased; the task's row names it (`resource`). When the claim ends, the member is given back
    (`leasing.judge`, then `leasing.released`); the task's `tried` follows (`leasing.tried_after`), `rotations` grows if
    the transition says rotated, and both start from nothing when it completes or an operator retries it. If a member is
    given back, who waits for the pool's queues is rung. Strikes on a destination (reports of a fault, as they came, and
    also those that were excused) are remembered for ten minutes, and forgotten when a use of it is ok. A member that
    was removed, and added again after the claim or lease began, is another one: nothing is given back to it.
    """

    async def declare_pool(self, name: str, rules: PoolRules) -> None:
        """Create the pool or change its rules; its members stand by the new ones at once, over the uses that are still
        remembered. The same rules again change nothing. Rings its queues."""

    @open_to_workers
    async def resource_pools(self) -> list[ResourcePool]:
        """Every pool by name, with its number of members by stage at this moment (zeros left out)."""

    @open_to_workers
    async def add_resources(self, pool: str, members: Sequence[NewResource]) -> list[bool]:
        """New members of a pool, which comes into being if need be; True for those that are new. One whose name the
        pool has is changed to what is said here (fields, secrets, labels, weight, limits, validity) and keeps the
        rest. A new one begins with the lowest turn that the pool has. Of equal names in one call the last counts, and
        all are answered alike. Rings its queues."""

    @open_to_workers
    async def change_resources(
        self, pool: str, names: Sequence[str] | None, change: ResourceChange | None
    ) -> list[str]:
        """Change members (None: all), or remove them if `change` is None; the names of those that there were,
        in order. Removing one that is in use ends nothing: its lease goes on and is given back to nobody. Enabling one
        forgets the reason. Rings its queues."""

    @open_to_workers
    async def resources(self, pool: str, names: Sequence[str] | None = None) -> list[Resource]:
        """Members by name, each with its stage as it is at this moment. An unknown pool has none."""


@runtime_checkable
class Leases(Protocol):
    """Resources for whoever has a loop of his own, and further uses of one that is held. Whatever an engine has.

    A lease is held until it is released or past its time. One that is past its time is nobody's, and its member is
    given back by the next `reclaim`, or by the next `acquire` under the same name.
    """

    @open_to_workers
    async def acquire(self, pool: str, want: Want, hold: Span, *, lease: str) -> Leased | Shortage:
        """A member for `hold` at most, as a claim would get it for a task with that want and nothing tried. `lease` is
        the caller's name for it; asking again with the same one while it is held answers with the same member."""

    @open_to_workers
    async def release(self, lease: str, report: Report | None) -> bool:
        """Give it back; False if the lease is not held (any more), and nothing is written then."""

    @open_to_workers
    async def extend(self, lease: str, hold: Span) -> Moment | None:
        """Hold it for so long from now on; until when, or None if it is not held."""

    @open_to_workers
    async def use(
        self, holder: "Token | str", task: TaskId | None = None, *, instead: Moment | None = None
    ) -> Moment | Shortage:
        """One more use of the member that a claim (its token and task) or a lease holds. The moment of the use, if it
        counts from now on; a shortage with its `until` if the member's limits do not allow it yet. `StaleLease` if it
        is not held any more. `instead` is the moment of a use that was granted to the holder and has not been made: it
        is not one more then, that one is moved (`leasing.moved`). Where windows remember uses and know of none at that
        moment, it is one more."""


@runtime_checkable
class Batches(Protocol):
    """Batches, and the lanes in which they queue up. How they stand is decided by `model.batching`.

    Items are tasks with a `batch`. They are held (reason "batch") until they are drawn. A claim draws before it looks
    for tasks: of each running batch, as many items as are missing until so many of it are pending in the queues asked
    for (those that are not paused) as the request wants in all (`free` and `ahead` of all slots), and
    `batching.PASSED_BY` more while it has held ones in a queue that is bound to a pool, for some may be passed by
    there. The first held ones
    (reason "batch") of these queues, lowest priority number first, then smallest id, become pending, or scheduled if
    they are due later; if it drew but none became pending and more are left, `next_due` is now. So starting and
    stopping a batch costs the same however many items it has.

    An item that would go back to waiting (settled, lost, retried, its handler known again) while its batch is not
    running is held (reason "batch") instead, and keeps when it is due. In the act in which the last unfinished item of
    a batch ends, whatever ends it, the batch is over: cancelled if it was being cancelled, else done, or done with
    errors if items failed; its `on_complete` task is put, with `batch` and `status` added to its params, and the next
    batch of its lane is promoted. In the act in which the last running item of a pausing batch ends, it is paused, and
    the next is promoted. Promoting takes the queued batch with the lowest rank (then the smallest id) as long as fewer
    than `max_running` have a slot. An item of an ended batch that an operator retries is held (reason
    "batch") and takes its batch back in line, at the end. `on_complete` is put as a follow-up is: it may overfill its
    queue, and a task that is there is met, so that a batch that ends again puts none. Prune leaves items
    of batches alone: they go with their batch.
    """

    @open_to_workers
    async def create_batch(self, batch: NewBatch, items: Sequence[NewTask]) -> Batch:
        """Store a batch with its items in one act, at the end of its lane's line, and promote it if there is a slot.
        The same id again changes nothing and answers with what is there. Items that meet existing tasks stay out; a
        batch without items is over at once. Capacity counts, as for `put`."""

    @open_to_workers
    async def act_on_batch(self, batch: BatchId, act: BatchAct, *, limit: int = 1000) -> BatchChanged:
        """Do what an operator wants, as `model.batch` says for each act; `NotFound` if there is no such batch,
        `InvalidInput` if its status does not allow it (`check_act`). What was done already changes nothing. Acts on
        items change at most `limit` of them per call, and `more` asks for a repeat (which is harmless). Requeueing
        meets unique keys as `Control.retry` does."""

    @open_to_workers
    async def batches(
        self, ids: Sequence[BatchId] | None = None, *, statuses: Sequence[BatchStatus] = (), limit: int = 100
    ) -> list[Batch]:
        """These (in any order; unknown ones left out), or the first `limit` of those statuses (none named: all):
        those that have a slot, then the queued in their order, the paused, then the ended, newest first."""

    @open_to_workers
    async def lanes(self) -> list[Lane]:
        """Every lane by name."""

    @open_to_workers
    async def change_lane(self, name: str, max_running: int) -> Lane:
        """How many batches of it run at a time; it comes into being if need be. More room promotes at once, less lets
        run what runs."""


@runtime_checkable
class Schema(Protocol):
    """The store's tables and their version."""

    async def schema_version(self) -> tuple[int, int]:
        """The version that the store has and the one that this release wants."""

    async def upgrade(self) -> list[str]:
        """Apply what is missing; names of the migrations applied."""


@runtime_checkable
class Within(Protocol):
    """SQL engines: enqueue inside the caller's own transaction."""

    def put_within(self, connection: Any, tasks: Sequence[NewTask]) -> Any:
        """As `put`, on the caller's connection to the same store, committed or rolled back by the caller. Returns
        what `put` returns, or an awaitable of it if the connection is async."""


@runtime_checkable
class Gradual(Protocol):
    """Engines whose `put` asks for the tasks of a large call little by little: they may come into being meanwhile, and
    what goes wrong with one leaves nothing of the call behind."""

    gradual: bool


@runtime_checkable
class Direct(Protocol):
    """Engines that can be asked from a plain thread, without an event loop in between."""

    def put_sync(self, tasks: Sequence[NewTask]) -> list[Placed]:
        """As `put`; returns when the tasks are stored."""


@runtime_checkable
class Diagnosis(Protocol):
    """Engines that can say whether their store is set up to keep what it promises."""

    async def diagnose(self, clock: Clock) -> list[Finding]:
        """What is in order and what is not: durability, room, versions, and how far `clock`, this host's, is from the
        store's own. Changes nothing."""


class Store(Engine, Sessions, Leader, Ledger, Control, Queues, Handlers, Desired, Protocol):
    """What every engine has."""


@runtime_checkable
class FullStore(Store, Resources, Leases, Batches, Protocol):
    """A store with everything that the conformance suite proves."""


class SqlStore(Store, Schema, Within, Protocol):
    """What every SQL engine has."""


Counts = Mapping[str, Mapping[State, int]]
