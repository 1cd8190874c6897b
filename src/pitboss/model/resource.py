"""Scarce things that tasks hold while they run: proxies, accounts, API keys. Limits and health belong to each member.

Plain values; `model.leasing` has the rules that change them.
"""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from enum import StrEnum
from math import inf
from typing import Literal

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import SECOND, Moment, Span
from pitboss.model.errors import InvalidInput, NotFound
from pitboss.model.limits import Window
from pitboss.model.queue import checked_name
from pitboss.model.text import listed

MINUTE: Span = 60 * SECOND
USE_WITHIN: Span = 10 * SECOND
HOUR: Span = 60 * MINUTE
MAX_LABELS = 20
# The checked value of a pool's key: times in microseconds, no limit as "none".
KeyValue = int | float | str | None
# Sealed values are texts of their own form; the store never sees an open one.
Sealed = str


class Strategy(StrEnum):
    """Which of the free members a task is given."""

    LEAST_RECENTLY_USED = "least_recently_used"
    ROUND_ROBIN = "round_robin"
    LEAST_LOADED = "least_loaded"
    WEIGHTED = "weighted"
    STICKY = "sticky"


class ResourceOutcome(StrEnum):
    """What a use says about the resource. `task_error` blames the task, and leaves the resource unchanged."""

    OK = "ok"
    RATE_LIMITED = "rate_limited"
    BLOCKED = "blocked"
    RESOURCE_ERROR = "resource_error"
    TASK_ERROR = "task_error"


class Stage(StrEnum):
    """Whether the next claim can give a member. An index keeps the ready ones in order, so others cost nothing."""

    READY = "ready"
    AWAY = "away"
    BUSY = "busy"
    OUT = "out"


class Condition(StrEnum):
    """The state of a member in words for people."""

    READY = "ready"
    BUSY = "busy"
    RESTING = "resting"
    COOLING = "cooling"
    BLACKLISTED = "blacklisted"
    DISABLED = "disabled"


class EntryKind(StrEnum):
    """What happened to a member. `failed, not blamed yet`: a request failed, which may be the far side's fault."""

    FAILED = "failed"
    NOT_BLAMED = "failed, not blamed yet"
    COOLING = "cooling"
    BLACKLISTED = "blacklisted"
    BACK = "back in service"
    DISABLED = "disabled"
    ENABLED = "enabled"
    RESET = "reset"
    RENEWED = "secrets renewed"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and how many at a time, a member may be used. Windows are exact wherever they begin.

    The gap counts from the start of a use, or from its end; a random part of up to `jitter` is added each time.
    `concurrency` None is without limit.

    The far side sees a request later than the store grants its use. So a use is open from its grant until its holder
    ends it, for `use_within` at most, and windows and gaps count from there. With `guard`, the longest delay between
    the grant and the far side, uses are not open: windows and gaps from the start are longer by the guard instead.
    """

    windows: tuple[Window, ...] = ()
    min_delay: Span = 0
    jitter: Span = 0
    delay_from: Literal["start", "end"] = "start"
    concurrency: int | None = 1
    guard: Span = 0
    use_within: Span = USE_WITHIN

    def __post_init__(self) -> None:
        shortest = min(self.min_delay, self.jitter, self.guard, self.use_within)
        if shortest < 0 or (self.concurrency is not None and self.concurrency < 1):
            raise InvalidInput(
                f"min_delay={self.min_delay}, jitter={self.jitter}, guard={self.guard}, "
                f"use_within={self.use_within}, concurrency={self.concurrency} cannot limit a resource",
                why="spans are not negative, and a resource that no task may use is disabled, not limited",
                fix="use spans of zero or more and a concurrency of at least 1, or None for no limit",
            )


class PoolRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for every member of a pool.

    `cooldown` follows a refusal (rate limited without a Retry-After, or blocked), and doubles while they go on;
    `max_failures` failures in a row put a member on the blacklist for `blacklist`, doubling each time it fails its
    probe. At most the share `max_ejected` of the enabled members is on the blacklist, and one always stays off it. A
    sticky key keeps its member for `bound_for` after its last use; `away` says whether it waits while that member
    cannot be used, or is bound to another one.
    """

    limits: Limits = Limits()
    strategy: Strategy = Strategy.LEAST_RECENTLY_USED
    away: Literal["wait", "rebind"] = "wait"
    bound_for: Span = 24 * HOUR
    max_failures: int = 3
    cooldown: Span = 15 * MINUTE
    cooldown_cap: Span = 6 * HOUR
    blacklist: Span = 30 * MINUTE
    blacklist_cap: Span = 24 * HOUR
    max_ejected: float = 0.5

    def __post_init__(self) -> None:
        spans = (self.bound_for, self.cooldown, self.blacklist)
        if (
            min(spans) < 0
            or self.cooldown_cap < self.cooldown
            or self.blacklist_cap < self.blacklist
            or self.max_failures < 1
            or not 0 <= self.max_ejected <= 1
        ):
            raise InvalidInput(
                f"{self} cannot be the rules of a resource pool",
                why="spans are not negative, a cap is not below its span, max_failures is at least 1, "
                "and max_ejected is a share from 0 to 1",
                fix="correct the values, or leave them out for the defaults",
            )


class Declaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules that code declares for a pool, by whom and when they last changed."""

    rules: PoolRules = PoolRules()
    by: str | None = None
    at: Moment = 0


class OperatorLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The keys that an operator has set, above every declaration, until they are reset."""

    values: dict[str, KeyValue] = {}
    by: str | None = None
    at: Moment = 0


class NewResource(msgspec.Struct, frozen=True, kw_only=True):
    """A member to be added to a pool. `fields` are readable by all, `secrets` are sealed before they come here.

    `limits` None: the pool's. `valid_until` is when its secrets must be renewed; None is never.
    """

    name: str
    fields: Json = "{}"
    secrets: dict[str, Sealed] = {}
    labels: tuple[str, ...] = ()
    weight: int = 100
    limits: Limits | None = None
    valid_until: Moment | None = None


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One line of a member's history: what happened `times` times in a row, the last time at `at`."""

    at: Moment
    what: EntryKind
    why: str | None = None
    until: Moment | None = None
    times: int = 1


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The usage history of a member.

    `turn` counts uses by weight, for strategies that take turns. `failures` and `cooldowns` are in a row;
    `blacklistings` too, and while there are any, the member is on probation: one use at a time, and the next failure
    blacklists it again. `ended_at` is when it was last given back, for gaps that count from there. `compared` are its
    newest uses that `model.comparison` judges it by. `late` uses may have passed a limit at the far side, because the
    process that made them had been stopped. `took` is how long answers take on
    average, if its holders can tell. `history` has what happened to it (`model.member_history`).
    """

    turn: int = 0
    uses: int = 0
    ok: int = 0
    failed: int = 0
    refused: int = 0
    failures: int = 0
    cooldowns: int = 0
    cooldown_until: Moment = 0
    blacklistings: int = 0
    blacklisted_until: Moment = 0
    last_outcome: ResourceOutcome | None = None
    last_error: str | None = None
    last_error_at: Moment = 0
    last_ok_at: Moment = 0
    ended_at: Moment = 0
    since: Moment = 0
    compared: int = 0
    late: int = 0
    took: Span = 0
    history: tuple[Entry, ...] = ()


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A stored member. `available_at` is the earliest moment at which another use may start. `last_used_at` lies ahead
    while its newest use is open.

    `rank` orders the ready members for the pool's strategy (lowest first, then `last_used_at`, then `name`).
    """

    pool: str
    name: str
    fields: Json = "{}"
    secrets: dict[str, Sealed] = {}
    labels: tuple[str, ...] = ()
    weight: int = 100
    limits: Limits | None = None
    valid_until: Moment | None = None
    enabled: bool = True
    disabled_reason: str | None = None
    added_at: Moment = 0
    stage: Stage = Stage.READY
    rank: int = 0
    in_use: int = 0
    available_at: Moment = 0
    last_used_at: Moment = 0
    record: Record = Record()

    @property
    def id(self) -> str:
        return f"{self.pool}/{self.name}"


class ResourceChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to members; UNSET fields stay as they are.

    `reason` is shown while `enabled` is False. `reset` clears failures, cooldown and blacklist, but not the uses that
    windows count. `late` more uses came too late (`Record.late`).
    """

    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    reason: str | None = None
    reset: bool = False
    labels: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    weight: int | msgspec.UnsetType = msgspec.UNSET
    limits: Limits | msgspec.UnsetType | None = msgspec.UNSET
    fields: Json | msgspec.UnsetType = msgspec.UNSET
    secrets: dict[str, Sealed] | msgspec.UnsetType = msgspec.UNSET
    valid_until: Moment | msgspec.UnsetType | None = msgspec.UNSET
    late: int = 0


class ResourcePool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with its rules and the number of members in each stage. `next_at` is when the next one becomes ready.

    `rules` are those that hold (`pool_rules.effective`). `declared` None: no code has declared the pool yet.
    """

    name: str
    rules: PoolRules = PoolRules()
    stages: dict[Stage, int] = {}
    next_at: Moment | None = None
    declared: Declaration | None = None
    limited: OperatorLimits | None = None

    @property
    def members(self) -> int:
        return sum(self.stages.values())


class Want(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task needs: a member with all these labels, and the one that its key is bound to, if any."""

    labels: tuple[str, ...] = ()
    key: str | None = None


class Leased(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A resource as its holder has it. `lease` names a lease without a task; with one, the claim is the lease.

    `asked` is when the holder asked for it, by its host's monotonic clock: the lease is not older than that, whatever
    the clocks of host and store show. Its use is open for `open_for` (0: not open), and remembered as made at
    `leased_at + open_for` until it ends. `shared`: others may hold the member at the same time.
    """

    pool: str
    name: str
    fields: Json = "{}"
    secrets: dict[str, Sealed] = {}
    labels: tuple[str, ...] = ()
    leased_at: Moment = 0
    valid_until: Moment | None = None
    guard: Span = 0
    lease: str | None = None
    expires_at: Moment | None = None
    asked: float | None = None
    open_for: Span = 0
    shared: bool = False

    @property
    def id(self) -> str:
        return f"{self.pool}/{self.name}"

    @property
    def use_at(self) -> Moment:
        """The moment under which the use that came with it is remembered."""
        return self.leased_at + self.open_for


class UseEnd(msgspec.Struct, frozen=True, array_like=True):
    """The end of an open use: the moment under which it is remembered, and when it was over; None: now."""

    at: Moment
    ended: Moment | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """How a use went. `destination` is the host that it was used on: failures there may not be the resource's fault.

    `took` is the time from a request to the beginning of its answer, if its client knows it.
    """

    outcome: ResourceOutcome
    retry_after: Span | None = None
    error: str | None = None
    destination: str | None = None
    took: Span | None = None


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """Why no member was given, and until when that will not change without a ring; None: unknown."""

    pool: str
    why: Literal["no members", "all disabled", "all busy", "all away", "none fits"]
    until: Moment | None = None


def checked_labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    """The labels, sorted and without repetition; refuses one that is no valid name."""
    if len(labels) > MAX_LABELS:
        raise InvalidInput(
            f"{len(labels)} labels are too many", why=f"a resource has at most {MAX_LABELS}", fix="use fewer"
        )
    return tuple(sorted({checked_name(label, "label") for label in labels}))


def no_such_member(pool: str, unknown: Sequence[str], known: Collection[str]) -> NotFound:
    """The error for names that a pool does not have."""
    close = [name for one in unknown for name in get_close_matches(one, known, n=1)]
    return NotFound(
        f"{pool} has no member {', '.join(unknown)}",
        why=f"its members are {listed(sorted(known))}" if known else "it has no members",
        fix=f"did you mean {', '.join(close)}? Nothing was changed" if close else "check the name; nothing was changed",
    )


def checked_resource(new: NewResource) -> NewResource:
    """The member with its labels in order; refuses one that cannot be stored."""
    checked_name(new.name, "resource")
    if not 0 < new.weight < inf:
        raise InvalidInput(
            f'resource "{new.name}" has the weight {new.weight}',
            why="a weight is above zero",
            fix="100 is the usual one",
        )
    return msgspec.structs.replace(new, labels=checked_labels(new.labels))
