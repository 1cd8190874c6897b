"""A registered handler, parameters and options make a task: the one rule for everyone who enqueues by name."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from pitboss.model.canonical import Json
from pitboss.model.duration import Moment, Span
from pitboss.model.ids import TaskId
from pitboss.model.queue import HandlerInfo, checked_name
from pitboss.model.resource import Want
from pitboss.model.task import NewTask, Unique
from pitboss.model.want_template import template_in_schema


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one enqueue may say beyond the parameters."""

    priority: int = 0
    delay: Span | None = None
    run_at: Moment | None = None
    key: str | None = None
    key_period: Span | None = None
    max_attempts: int | None = None
    timeout: Span | None = None
    expires_in: Span | None = None
    expires_at: Moment | None = None
    tags: tuple[str, ...] = ()
    order_key: str | None = None

    def task(
        self,
        *,
        task_id: TaskId,
        handler: str,
        queue: str,
        params: Json,
        parent: TaskId | None,
        want: Want | None = None,
        meta: Json | None = None,
    ) -> NewTask:
        # The handler's name is part of both keys: "u:1" of one handler never meets "u:1" of another.
        unique = None if self.key is None else Unique(f"{handler}/{self.key}", self.key_period)
        return NewTask(
            id=task_id,
            handler=handler,
            queue=queue,
            params=params,
            parent=parent,
            priority=self.priority,
            delay=self.delay,
            run_at=self.run_at,
            unique=unique,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            expires_in=self.expires_in,
            expires_at=self.expires_at,
            tags=self.tags,
            want=want,
            order_key=None if self.order_key is None else f"{handler}/{self.order_key}",
            meta=meta,
        )


_NO_OPTIONS = TaskOptions()


def new_task(
    handler: HandlerInfo,
    params: Json,
    task_id: TaskId,
    options: TaskOptions = _NO_OPTIONS,
    *,
    queue: str | None = None,
    parent: TaskId | None = None,
) -> NewTask:
    """The task that this handler runs with these checked parameters, on the handler's queue unless another is given.

    Labels and sticky key follow from the parameters. The handler's policy stays with the handler: a task carries only
    what the options override.
    """
    (task,) = new_tasks(handler, [params], lambda: task_id, options, queue=queue, parent=parent)
    return task


def new_tasks(
    handler: HandlerInfo,
    params: Iterable[Json],
    make_id: Callable[[], TaskId],
    options: TaskOptions = _NO_OPTIONS,
    *,
    queue: str | None = None,
    parent: TaskId | None = None,
) -> Iterator[NewTask]:
    """As `new_task`, for many: the handler's schema is read once."""
    place = handler.queue if queue is None else checked_name(queue, "queue")
    template = template_in_schema(handler.schema)
    for one in params:
        want = None if template is None else template.want(one)
        yield options.task(task_id=make_id(), handler=handler.name, queue=place, params=one, parent=parent, want=want)
