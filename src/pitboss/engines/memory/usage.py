"""How much memory the tasks take, roughly, and refusing new ones."""

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.usage import StoreUsage

# A task takes about this much besides its texts.
_TASK = 1000


class UsageVerbs(Verbs):
    """The protocol `Usage`."""

    async def usage(self) -> StoreUsage:
        tasks = self.tables.tasks.values()
        size = sum(_TASK + len(task.params) + len(task.result or "") for task in tasks)
        return StoreUsage(size=size, refusing=self.tables.refusing)

    async def refuse_new(self, reason: str | None, *, term: int) -> None:
        self.check_term(term, self.clock.now())
        self.tables.refusing = reason
