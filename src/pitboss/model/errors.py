"""The one error tree. A message says what happened, why, and what to do about it."""


class PitbossError(Exception):
    """Base of every error that Pitboss raises. `code` is stable and may be matched by programs."""

    code = "error"

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why, fix)
        self.what, self.why, self.fix = what, why, fix

    def __str__(self) -> str:
        lines = [self.what, self.why and f"Why: {self.why}", self.fix and f"Fix: {self.fix}"]
        return "\n".join(line for line in lines if line)


class InvalidInput(PitbossError, ValueError):
    """An argument cannot be accepted; nothing was written."""

    code = "invalid-input"


class KeyMissing(InvalidInput):
    """A secret is sealed with a key that this process lacks. In a worker, the task waits, at no attempt."""

    code = "key-missing"


class QueueFull(PitbossError):
    """The queue's capacity is used up; nothing was written."""

    code = "queue-full"

    def __init__(self, queue: str, capacity: int, waiting: int, asked: int) -> None:
        super().__init__(
            f'queue "{queue}" is full: {waiting} of {capacity} places are taken, {asked} more were asked for',
            why="the queue has a capacity, so that work cannot pile up without bound",
            fix="enqueue again later, pass wait=<seconds> to wait for room, or raise the queue's capacity",
        )
        self.queue, self.capacity, self.waiting, self.asked = queue, capacity, waiting, asked

    def __reduce__(self) -> tuple[type["QueueFull"], tuple[str, int, int, int]]:
        return QueueFull, (self.queue, self.capacity, self.waiting, self.asked)


class StoreFull(PitbossError):
    """The store has reached its size limit or its disk is nearly full; nothing was written. What runs goes on."""

    code = "store-full"

    def __init__(self, reason: str) -> None:
        super().__init__(
            "the store takes no new tasks at the moment",
            why=reason,
            fix="enqueue again later; raise max_store_size, free disk space, or keep finished tasks for less time",
        )
        self.reason = reason

    def __reduce__(self) -> tuple[type["StoreFull"], tuple[str]]:
        return StoreFull, (self.reason,)


class SessionLost(PitbossError):
    """The session ended or was not renewed in time; it can never come back under the same number."""

    code = "session-lost"

    def __init__(self, session: int) -> None:
        super().__init__(
            f"session {session} is not alive",
            why="it was closed, declared dead, or not renewed before it expired; its tasks belong to others now",
            fix="drop what this session held and open a new session",
        )
        self.session = session

    def __reduce__(self) -> tuple[type["SessionLost"], tuple[int]]:
        return SessionLost, (self.session,)


class NotLeader(PitbossError):
    """A duty of the leader was asked for under a term that is over; nothing was written."""

    code = "not-leader"

    def __init__(self, term: int) -> None:
        super().__init__(
            f"term {term} is not the leader's",
            why="the session that led under it is over or has resigned, and another may lead under a later term by now",
            fix="leave the duty to the leader; campaign again, and lead only under the term that the answer names",
        )
        self.term = term

    def __reduce__(self) -> tuple[type["NotLeader"], tuple[int]]:
        return NotLeader, (self.term,)


class StaleLease(PitbossError):
    """The lease is over: given back, past its time, or its claim was taken away."""

    code = "stale-lease"

    def __init__(self, lease: str) -> None:
        super().__init__(
            f"lease {lease} is not held any more",
            why="it was given back, its time ran out, or the task's claim was lost",
            fix="stop using the resource and acquire another one; hold= says how long a lease without a task lasts",
        )
        self.lease = lease

    def __reduce__(self) -> tuple[type["StaleLease"], tuple[str]]:
        return StaleLease, (self.lease,)


class MemberRemoved(StaleLease):
    """The resource was removed from its pool while it was held. In a handler, the task goes to another member."""

    code = "member-removed"

    def __init__(self, resource: str) -> None:
        PitbossError.__init__(
            self,
            f"{resource} was removed from its pool while it was held",
            why="someone removed the member; a use of it would count nowhere",
            fix="acquire another one; a handler that lets this error pass is run again with another, at no attempt",
        )
        self.lease = resource

    def __reduce__(self) -> tuple[type["MemberRemoved"], tuple[str]]:
        return MemberRemoved, (self.lease,)


class StoreUnavailable(PitbossError):
    """The store cannot be reached or does not answer. Whether the last write happened may be unknown."""

    code = "store-unavailable"


class StoreDamaged(StoreUnavailable):
    """The store's content contradicts itself: waiting does not help, and writing may make it worse."""

    code = "store-damaged"


class SchemaMismatch(PitbossError):
    """The store's schema is not the one that this version works with."""

    code = "schema-mismatch"


class Unsupported(PitbossError):
    """The app needs something that its engine does not have."""

    code = "unsupported"


class NotFound(PitbossError, LookupError):
    """No such task, queue or handler in the store."""

    code = "not-found"


class TimedOutWaiting(PitbossError, TimeoutError):
    """A call reached its time limit while waiting. The awaited work goes on."""

    code = "timed-out"


class BudgetSpent(TimedOutWaiting):
    """The limits of a held resource allowed no further use in time. In a handler, the task goes to another member."""


class TaskFailed(PitbossError):
    """The awaited task ended without a result: it failed or was cancelled."""

    code = "task-failed"


class Refused(PitbossError):
    """Not done: it was not confirmed, or it would have done harm."""

    code = "refused"


class NotDone(PitbossError):
    """What was asked for cannot finish without an operator."""

    code = "not-done"
