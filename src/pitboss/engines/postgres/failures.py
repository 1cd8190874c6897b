"""What follows when a task fails for good, put in the same transaction. `model.failure` has the rule."""

from collections.abc import Collection, Sequence

from pitboss.engines.postgres import rows
from pitboss.engines.postgres.put import put
from pitboss.engines.postgres.rows import names, texts
from pitboss.engines.postgres.script import Ask, Row, Script, Statements
from pitboss.model.duration import Moment
from pitboss.model.failure import failed_for_good, failure_tasks, needed_handlers
from pitboss.model.ids import TaskId


def routes(sql: Statements) -> Ask:
    """The handlers with routes. Usually there are none, and then nothing else is asked."""
    return sql.ask("handler_routes")


def follow(sql: Statements, ended: Collection[TaskId], found: Sequence[Row], now: Moment | None) -> Script[None]:
    """Put what follows those of these tasks that have just failed for good. `found` are the rows of `routes`."""
    if not ended or not found:
        return
    tasks = [rows.task(row) for row in (yield sql.ask("task_get", ids=texts(sorted(ended))))]
    failed = [task for task in tasks if failed_for_good(task)]
    needed = needed_handlers(failed, dict(found))
    if not needed:
        return
    known = [rows.handler(row) for row in (yield sql.ask("handler_get", names=names(needed)))]
    handlers = {handler.name: handler for handler in known}
    new = [one for task in failed for one in failure_tasks(task, handlers)]
    if new:
        yield from put(sql, new, now, ring=True)
