"""Notes which runs of schedules succeeded, before their tasks are pruned."""

from pitboss.engines.declared_protocol import LeaderActs, Schedules
from pitboss.engines.protocol import Store
from pitboss.model.schedule import noted

_PAGE = 1000


async def note_successes(engine: Store, schedules: Schedules, acts: LeaderActs, term: int) -> None:
    """Look at the open runs of all schedules. A schedule that fires or changes meanwhile does the same by itself."""
    after: str | None = None
    while page := await schedules.schedules(limit=_PAGE, after=after):
        after = page[-1].name
        ids = [task for one in page for _, task in one.open]
        tasks = zip(ids, await engine.get(ids) if ids else [], strict=True)
        states = {one: None if task is None else task.state for one, task in tasks}
        found = [made for one in page if (made := noted(one, states)) is not None]
        if found:
            await acts.fire(found, term=term)
