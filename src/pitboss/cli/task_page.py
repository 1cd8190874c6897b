"""One task on one page."""

import msgspec

from pitboss.cli.formatting import ago, took, when
from pitboss.cli.screen import Screen
from pitboss.model.duration import Moment, spoken
from pitboss.model.task import Attempt, Task, TaskError
from pitboss.model.waiting import spoken_place, spoken_start
from pitboss.operate.origin import origin_lines
from pitboss.operate.stacks import StackReading
from pitboss.operate.tasks import TaskPage

_LONG = 100


def draw_task(screen: Screen, page: TaskPage, now: Moment) -> None:
    """State and reason, params and result, policy, times, and every run."""
    task = page.task
    screen.fields([("task", task.handler), ("id", task.id), ("state", task.state), ("why", page.why.sentence)])
    screen.fields(
        [
            ("place", spoken_place(page.why)),
            ("starts", spoken_start(page.why) if page.why.gates else None),
            ("helps", "; ".join(page.why.helps)),
        ]
    )
    screen.fields([("from", "\n".join(origin_lines(task)))])
    screen.fields([("progress", _progress(task)), ("params", _json(task.params)), ("result", _json(task.result))])
    screen.fields(_policy(task))
    screen.fields(
        (label, when(moment, now))
        for label, moment in (
            ("created", task.created_at),
            ("due", task.run_at),
            ("started", task.started_at),
            ("finished", task.finished_at),
            ("expires", task.expires_at),
        )
    )
    for attempt in page.attempts:
        screen.heading(_headline(attempt, now))
        if attempt.error is not None:
            _draw_error(screen, attempt.error)
    if task.error is not None and not any(attempt.error for attempt in page.attempts):
        screen.heading("Last error")
        _draw_error(screen, task.error)


def _policy(task: Task) -> list[tuple[str, str | None]]:
    tries = f"{task.attempts} of {task.max_attempts}" if task.max_attempts is not None else str(task.attempts)
    lost = f"; lost {task.losses} times" if task.losses else ""
    return [
        ("queue", f"{task.queue}, priority {task.priority}" if task.priority else task.queue),
        ("attempts", f"{tries}{lost}"),
        ("timeout", None if task.timeout is None else spoken(task.timeout)),
        ("partition", task.partition),
        ("key", task.unique_key),
        ("order key", task.order_key),
        ("tags", ", ".join(task.tags)),
        ("parent", task.parent),
        ("batch", task.batch),
        ("resource", _resource(task)),
        ("worker", task.worker),
    ]


def _resource(task: Task) -> str | None:
    wanted = "" if task.want is None else ", ".join((*task.want.labels, *([task.want.key] if task.want.key else [])))
    parts = [
        task.resource or "",
        f"wants {wanted}" if wanted else "",
        f"failed with {', '.join(task.tried)}" if task.tried else "",
        f"moved to another member {task.rotations} times" if task.rotations else "",
    ]
    return "; ".join(part for part in parts if part) or None


def _headline(attempt: Attempt, now: Moment) -> str:
    where = f" in {attempt.worker}" if attempt.worker else ""
    ran = took(attempt.ended_at - attempt.started_at)
    return f"Run {attempt.claim}: {attempt.outcome} after {ran}{where}, {ago(attempt.ended_at, now)}"


def _draw_error(screen: Screen, error: TaskError) -> None:
    name = error.type or error.category
    screen.line(f"  {name}: {error.message.strip()}", "red")
    for line in error.traceback.rstrip().splitlines():
        screen.line(f"  {line}")


def _progress(task: Task) -> str | None:
    if task.progress is None:
        return None
    return f"{task.progress} %  {task.note or ''}".rstrip()


def _json(text: str | None) -> str | None:
    """On one line if it is short."""
    if text is None or len(text) <= _LONG:
        return text
    return msgspec.json.format(text, indent=2)


def draw_stack(screen: Screen, reading: StackReading, now: Moment) -> None:
    """Where the task is, the innermost line last."""
    stack = reading.stack
    screen.fields([("task", reading.task.handler), ("id", reading.task.id), ("host", reading.host)])
    screen.fields([("worker", stack.worker), ("at", when(stack.at, now)), ("note", stack.note)])
    screen.line()
    for line in stack.lines:
        screen.line(f"  {line}")
