"""The shapes of answers, for the OpenAPI document. More fields may come; those that are here stay."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, create_model

T = TypeVar("T")


class Shape(BaseModel):
    model_config = ConfigDict(extra="allow")


class Envelope(Shape, Generic[T]):
    success: bool
    message: str
    data: T
    timestamp: int


class ErrorEnvelope(Shape):
    success: bool
    error: str
    timestamp: int
    details: dict[str, Any] | None = None


class Unauthorized(Shape):
    error: str
    message: str
    timestamp: str


class TooFast(Shape):
    error: str
    message: str
    retry_after: int
    limit: int
    window: int
    timestamp: int


class TypeChange(Shape):
    id: int
    name: str
    version: str


class TaskTypeShape(Shape):
    id: int
    name: str
    version: str
    param_schema: dict[str, Any]
    is_active: bool
    remote: bool
    queue: str
    max_attempts: int
    timeout: float | None
    dedupe: str
    description: str
    created_at: str | None
    updated_at: str | None


class Created(Shape):
    id: str
    type: str
    status: str
    state: str
    priority: int
    dedupe_key: str | None


class TaskShape(Shape):
    id: str
    type: str
    status: str
    state: str
    params: dict[str, Any]
    result: Any
    error_message: str | None
    priority: int
    progress: int
    attempts: int
    claimed_by: str | None
    claimed_at: str | None
    claim_expires_at: str | None
    completed_at: str | None
    created_at: str | None
    queue: str
    tags: list[str]


class ClaimShape(Shape):
    """One task, or with `limit` the fields `tasks`, `items` and `count`."""


class Sign(Shape):
    id: str
    claim_expires_at: str | None
    cancel_requested: bool


class EndedShape(Shape):
    id: str
    status: str


class WorkerShape(Shape):
    worker_id: str
    name: str
    status: str
    metadata: dict[str, Any]
    registered_at: str | None
    last_seen: str | None
    current_tasks: list[str]


class StatsShape(Shape):
    worker_id: str
    total_claimed: int
    total_completed: int
    total_failed: int
    currently_claimed: int
    success_rate: float


class Scaling(Shape):
    wanted_workers: int
    pending: int
    running: int


class ScheduleShape(Shape):
    name: str
    type: str
    when: str
    cron: str | None
    every: float | None
    at: str | None
    tz: str
    params: dict[str, Any]
    overlap: str
    catchup: str
    next_at: str | None
    overdue: bool
    paused: bool
    app: str | None
    last_tick: str | None
    last_state: str | None
    last_success: str | None
    fired: int
    skipped: int
    missed: int


class RunShape(Shape):
    id: str
    status: str
    created: bool
    schedule: str


class Ticks(Shape):
    name: str
    when: str
    ticks: list[str]


class SilenceShape(Shape):
    rule: str
    until: str
    at: str
    by: str
    reason: str


class AlertShape(Shape):
    name: str
    condition: str
    severity: str
    state: str
    since: str | None
    about: str
    value: float | None
    threshold: float
    fired: int
    silence: SilenceShape | None


class Alerts(Shape):
    looked_at: str | None
    alerts: list[AlertShape]
    items: list[AlertShape]
    channels: list[dict[str, Any]]
    count: int


class EventShape(Shape):
    id: str
    name: str
    data: Any
    key: str | None
    published_at: str
    handlers: list[str]


class PublishedShape(Shape):
    id: str
    name: str
    handlers: list[str]
    tasks: list[str]
    created: bool


class Health(Shape):
    status: str


class Anything(Shape):
    pass


def listed(name: str, item: type[BaseModel]) -> type[BaseModel]:
    """A list under its own name and under `items`, with its length."""
    fields: Any = {name: (list[item], ...), "items": (list[item], ...), "count": (int, ...)}  # type: ignore[valid-type]
    return create_model(f"{item.__name__}List", __base__=Shape, **fields)


ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": model, "description": text}
    for code, model, text in (
        (400, ErrorEnvelope, "The request cannot be used"),
        (401, Unauthorized, "No key, or a wrong one"),
        (403, ErrorEnvelope, "The key may not do this, or another worker has the task"),
        (404, ErrorEnvelope, "There is no such thing"),
        (405, ErrorEnvelope, "The path does not have this method"),
        (408, ErrorEnvelope, "The body did not come in time"),
        (409, ErrorEnvelope, "It does not fit the present state"),
        (413, ErrorEnvelope, "The body is too large"),
        (415, ErrorEnvelope, "The body is not JSON"),
        (421, ErrorEnvelope, "The Host header does not name this machine"),
        (422, ErrorEnvelope, "The Idempotency-Key was used with another body"),
        (429, TooFast, "Too fast"),
        (503, ErrorEnvelope, "The store does not answer, or a queue is full"),
    )
}
