"""The bodies of requests. Clients of the original API send fields that mean nothing here, which are ignored unless they
look like a mistyped one (`check_names`). A known field must have
exactly the type that the OpenAPI document names: "5" is not a number, and 1 is not true."""

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator

from pitboss.http.answers import ApiError
from pitboss.http.patterns import EVENT, NAME, PLAIN, RATE, WORKER
from pitboss.model.access import Role
from pitboss.model.partition import LONGEST_KEY
from pitboss.model.resource import MAX_LABELS
from pitboss.operate.views import LONGEST_FILTER, LONGEST_NAME

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d")
MOST_TASKS = 1000
MOST_CLAIMED = 100
MOST_PERCENT = 100
SORTS = ("created_at", "priority", "id", "attempts")
DAY = 86_400
ALIKE, COMPARED = 0.75, 20
# Sent by clients of the original API.
_KNOWN_EXTRAS = frozenset({"parent_task_id"})
YEAR = 365 * DAY


def _object(value: Any) -> Any:
    """An empty list means an empty object: some languages cannot tell them apart."""
    return {} if value == [] else value


def _percent(value: Any) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_PERCENT:
        raise ValueError("Progress must be between 0 and 100")
    return round(value)


def _whole(value: Any) -> Any:
    """5.0 is a whole number too: some languages write it so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: Any) -> Any:
    value = _whole(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("task_type_id must be a positive integer")
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str) or not _MOMENT.match(value):
        raise ValueError("It is a date and time with a time zone, such as 2030-01-01T08:00:00Z")
    return value


def _with_zone(value: datetime, name: str) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"{name} needs a time zone, such as 2030-01-01T08:00:00Z")
    return value


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True, strict=True)


def check_names(body: BaseModel) -> None:
    """Refuse a field that is nearly one that exists: a mistyped one would be ignored silently. Others are left out."""
    many = body.tasks if isinstance(body, CreateTasks) else ()
    compared = COMPARED
    for one in (body, *many):
        unknown = one.model_extra
        if not unknown:
            continue
        for name in islice(unknown, compared):
            _refuse_mistyped(name, one)
        # A comparison is slow, and a body can have a hundred thousand fields.
        compared = max(0, compared - len(unknown))
        one.model_fields_set.difference_update(unknown)
        unknown.clear()


def _refuse_mistyped(name: str, body: BaseModel) -> None:
    close = get_close_matches(name[:80], type(body).model_fields, n=1, cutoff=ALIKE)
    if close and name not in _KNOWN_EXTRAS:
        raise ApiError(
            400,
            f"There is no field {name[:80]}",
            why="a mistyped field would be ignored silently",
            fix=f"did you mean {close[0]}?",
        )


Params = Annotated[
    dict[str, Any],
    BeforeValidator(_object),
    WithJsonSchema({"anyOf": [{"type": "object", "additionalProperties": True}, {"type": "array", "maxItems": 0}]}),
]
WorkerId = Annotated[str, Field(min_length=1, max_length=200, pattern=WORKER)]
Name = Annotated[str, Field(pattern=NAME)]
Number = Annotated[int, Field(ge=-(2**53), le=2**53)] | Annotated[float, Field(allow_inf_nan=False)]
Whole = BeforeValidator(_whole)
Priority = Annotated[int, Field(ge=-32_768, le=32_767), Whole]
Attempts = Annotated[int, Field(ge=1, le=1000), Whole]
Seconds = Annotated[float, Field(ge=0, le=YEAR)]
Text = Annotated[str, Field(max_length=100_000)]
Short = Annotated[str, Field(max_length=1000, pattern=PLAIN)]
# What a worker says of its task is never refused for its characters.
Said = Annotated[str, Field(max_length=1000)]
Moment = Annotated[datetime, Field(strict=False), BeforeValidator(_moment)]
Dedupe = Literal["unfinished", "forever", "none"]


class RegisterType(Body):
    name: Name
    version: Annotated[str, Field(min_length=1, max_length=100, pattern=PLAIN)]
    param_schema: dict[str, Any] | str = Field(description='A JSON Schema (or its JSON as text) that has "type".')
    queue: Name | None = None
    max_attempts: Attempts | None = None
    timeout: Annotated[float, Field(ge=1, le=7 * DAY)] | None = None
    backoff: Annotated[float, Field(ge=0, le=DAY)] | None = None
    dedupe: Dedupe | None = None
    description: Short | None = None
    activate: bool = Field(default=True, description="Whether a type that was made inactive is active again.")


class CreateTask(Body):
    type: Annotated[str, Field(min_length=1, max_length=128)]
    params: Params
    priority: Priority = 0
    delay: Seconds | None = None
    run_at: Moment | None = Field(default=None, description="With a time zone.")
    queue: Name | None = None
    max_attempts: Attempts | None = None
    timeout: Annotated[float, Field(gt=0, le=7 * DAY)] | None = None
    expires_in: Annotated[float, Field(gt=0, le=YEAR)] | None = None
    tags: Annotated[list[Name], Field(max_length=50)] = []
    dedupe: Dedupe | None = None
    dedupe_key: Annotated[str, Field(min_length=1, max_length=300, pattern=PLAIN)] | None = None

    @field_validator("run_at")
    @classmethod
    def _zoned(cls, value: datetime | None) -> datetime | None:
        return None if value is None else _with_zone(value, "run_at")


class CreateTasks(Body):
    tasks: Annotated[list[CreateTask], Field(min_length=1, max_length=MOST_TASKS)]


class ClaimTasks(Body):
    worker_id: WorkerId
    task_type_id: Annotated[int, Field(ge=1), BeforeValidator(_number)] | None = None
    task_type_ids: Annotated[list[Annotated[int, Field(ge=1), Whole]], Field(max_length=1000)] | None = None
    types: Annotated[list[Name], Field(max_length=1000)] | None = None
    type_pattern: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    wait: Annotated[float, Field(ge=0, le=30)] = 0
    limit: Annotated[int, Field(ge=1, le=MOST_CLAIMED), Whole] | None = None
    claim_timeout: Annotated[float, Field(ge=1, le=DAY)] | None = None
    sort_by: Literal["created_at", "priority", "id", "attempts"] | None = None
    sort_order: Literal["ASC", "DESC", "asc", "desc"] = "ASC"

    @field_validator("sort_by", mode="before")
    @classmethod
    def _sort_by(cls, value: Any) -> Any:
        if value is not None and value not in SORTS:
            raise ValueError(f"Invalid sort_by field. Allowed values: {', '.join(SORTS)}")
        return value

    @field_validator("sort_order", mode="before")
    @classmethod
    def _sort_order(cls, value: Any) -> Any:
        if value not in ("ASC", "DESC", "asc", "desc"):
            raise ValueError("Invalid sort_order. Allowed values: ASC, DESC")
        return value


class Report(Body):
    """What every report of a worker names."""

    worker_id: WorkerId
    claim_token: Annotated[str, Field(max_length=100)] | None = None


class Progress(Report):
    progress: Annotated[
        int,
        Field(ge=0, le=MOST_PERCENT),
        BeforeValidator(_percent),
        WithJsonSchema({"type": "number", "minimum": 0, "maximum": MOST_PERCENT}),
    ]
    message: Said | None = None


class Ended(Body):
    success: bool
    result: Any = None
    error: Text | None = None
    error_type: Annotated[str, Field(max_length=100)] | None = None
    retryable: bool | None = None
    traceback: Text | None = None
    retry_after: Seconds | None = None


class Complete(Report, Ended):
    pass


class Fail(Report):
    error: Text = ""
    error_type: Annotated[str, Field(max_length=100)] | None = None
    retryable: bool | None = None
    traceback: Text | None = None
    retry_after: Seconds | None = None


class Release(Report):
    delay: Seconds = 0
    reason: Said = ""


class EndedTask(Ended):
    id: Annotated[str, Field(max_length=100)]
    claim_token: Annotated[str, Field(max_length=100)] | None = None


class CompleteMany(Body):
    worker_id: WorkerId
    outcomes: Annotated[list[EndedTask], Field(min_length=1, max_length=MOST_CLAIMED)]


class Cancel(Body):
    reason: Short = ""


class Retry(Body):
    keep_attempts: bool = False


class Selected(Body):
    filter: Annotated[str, Field(min_length=1, max_length=2000, pattern=PLAIN)]
    reason: Short = ""
    keep_attempts: bool = False


class RetryMany(Selected):
    """With a rate, failed tasks only."""

    rate: Annotated[str, Field(min_length=1, max_length=200, pattern=RATE)] | None = Field(
        default=None, description='Such as "10/s".'
    )
    stop_on_failures: Annotated[int, Field(ge=1, le=10**6), Whole] | None = None


class OperationRate(Body):
    """None: no rate."""

    rate: Annotated[str, Field(min_length=1, max_length=200, pattern=RATE)] | None


Status = Literal["active", "idle", "offline"]


class RegisterWorker(Body):
    worker_id: WorkerId
    name: Short | None = None
    status: Status = "active"
    metadata: Params = {}
    types: Annotated[list[Name], Field(max_length=1000)] = []


class HeldTask(Body):
    id: Annotated[str, Field(max_length=100)]
    claim_token: Annotated[str, Field(max_length=100)] | None = None


class Heartbeat(Body):
    tasks: Annotated[list[HeldTask], Field(max_length=1000)] = []
    status: Status | None = None


class SetStatus(Body):
    status: Status


class ChangeQueue(Body):
    capacity: Annotated[int, Field(ge=1, le=2**53), Whole] | None = None
    rate: Annotated[str, Field(max_length=200, pattern=RATE)] | None = Field(
        default=None, description='Such as "10/s, 100/m".'
    )
    max_per_key: Annotated[int, Field(ge=1, le=2**53), Whole] | None = Field(
        default=None, description="How many tasks of one partition key may run at once."
    )
    reset: bool = Field(default=False, description="Withdraw what operators set; what is declared holds again.")


class ScalePool(Body):
    size: Annotated[int, Field(ge=0, le=1000), Whole] | None
    host: Short | None = None


class OneKey(Body):
    key: Annotated[str, Field(min_length=1, max_length=LONGEST_KEY, pattern=PLAIN)]


class GiveKey(OneKey):
    slot: Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN)] = Field(
        description='Such as "3", or "scrapers/3".'
    )


class NewMember(Body):
    name: Name
    fields: dict[str, Short | Number | bool | None] = {}
    labels: Annotated[list[Name], Field(max_length=MAX_LABELS)] = []
    weight: Annotated[int, Field(ge=1, le=1000), Whole] = 100


class AddMembers(Body):
    """As objects, or as lines of text: "host:port" or a URL."""

    members: Annotated[list[NewMember], Field(max_length=1000)] = []
    text: Annotated[str, Field(max_length=100_000, pattern=PLAIN)] = ""
    labels: Annotated[list[Name], Field(max_length=MAX_LABELS)] = Field(default=[], description="For those in text.")


class LimitPool(Body):
    limits: Annotated[dict[str, str], Field(max_length=100)] = {}
    reset: bool = False


class CreateBatch(Body):
    type: Annotated[str, Field(min_length=1, max_length=128)]
    items: Annotated[list[Params], Field(min_length=1, max_length=10_000)]
    name: Short = ""
    lane: Name = "default"
    data: Params = {}
    on_complete: Annotated[str, Field(max_length=128)] | None = None
    paused: bool = False
    priority: Priority = 0
    max_attempts: Attempts | None = None


class ChangeTask(Body):
    priority: Priority | None = None
    tag: Annotated[list[Name], Field(max_length=50)] = []
    untag: Annotated[list[Name], Field(max_length=50)] = []


class ChangeMany(ChangeTask):
    filter: Annotated[str, Field(min_length=1, max_length=2000, pattern=PLAIN)]


class Pause(Body):
    reason: Short = ""


class ActOnBatch(Body):
    """`at` is for resume, `to` and `before` for move, `reason` for pause and cancel, the others for requeue."""

    reason: Short = ""
    at: Literal["place", "top", "bottom"] = "place"
    to: Literal["top", "up", "down", "bottom", "before"] = "top"
    before: Annotated[str, Field(max_length=100)] | None = None
    error: Short | None = None
    cancelled: bool = False
    keep_attempts: bool = False


class ChangeLane(Body):
    max_running: Annotated[int, Field(ge=1, le=10_000), Whole]


class ScheduleFields(Body):
    """One of `cron`, `every` and `at` says when; spans are in seconds."""

    cron: Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN)] | None = Field(
        default=None, description='Such as "*/15 * * * *", or six fields with seconds first.'
    )
    every: Annotated[float, Field(ge=1, le=YEAR)] | None = None
    at: Moment | None = Field(default=None, description="Once; with a time zone.")
    tz: Annotated[str, Field(min_length=1, max_length=100, pattern=PLAIN)] | None = Field(
        default=None, description="The zone of the cron line; UTC if it is never said."
    )
    params: Params | None = None
    queue: Name | None = None
    priority: Priority | None = None
    max_attempts: Attempts | None = None
    timeout: Annotated[float, Field(gt=0, le=7 * DAY)] | None = None
    overlap: Literal["skip", "queue", "allow"] | None = None
    catchup: Literal["none", "last", "all"] | None = None
    jitter: Annotated[float, Field(ge=0, le=DAY)] | None = None

    @field_validator("at")
    @classmethod
    def _zoned(cls, value: datetime | None) -> datetime | None:
        try:
            return None if value is None else _with_zone(value, "at").astimezone(UTC)
        except OverflowError:
            raise ValueError("at is outside the years 1 to 9999 in UTC") from None


class CreateSchedule(ScheduleFields):
    name: Name
    type: Annotated[str, Field(min_length=1, max_length=128)]


class SilenceAlert(Body):
    """`for` is in seconds."""

    rule: Name
    lasts: Annotated[float, Field(ge=1, le=YEAR, alias="for")]
    reason: Annotated[str, Field(max_length=500, pattern=PLAIN)] = ""


class SaveView(Body):
    """Of the caller alone, unless it is `shared`."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=PLAIN)]
    filter: Annotated[str, Field(min_length=1, max_length=LONGEST_FILTER, pattern=PLAIN)]
    shared: bool = False


class Publish(Body):
    name: Annotated[str, Field(max_length=128, pattern=EVENT)]
    data: Any = Field(default=None, description="Any JSON; it goes into the one parameter of each handler.")
    key: Annotated[str, Field(min_length=1, max_length=512, pattern=PLAIN)] | None = Field(
        default=None, description="Handlers that keep the order get events with one key one at a time."
    )
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255, pattern=PLAIN)] | None = Field(
        default=None, description="As the header Idempotency-Key: a repetition within a day publishes nothing more."
    )


class Replay(Body):
    handlers: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = None


class CreateKey(Body):
    name: Name
    roles: Annotated[list[Annotated[Role, Field(strict=False)]], Field(min_length=1)]
