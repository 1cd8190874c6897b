"""What stands between tasks and their start besides workers: batches that are not over, and scarce resources."""

from typing import TYPE_CHECKING, Any, NamedTuple

from pitboss.cli.batch_page import batch_document, draw_batches
from pitboss.cli.batch_reading import Survey, surveyed
from pitboss.cli.screen import Column, Screen
from pitboss.cli.words import ago, utc
from pitboss.engines.capabilities import capabilities
from pitboss.model.batch import IN_SLOT, BatchStatus
from pitboss.model.duration import Moment
from pitboss.model.resource import ResourcePool, Stage

if TYPE_CHECKING:
    from pitboss.engines.protocol import Store

_UNFINISHED = (*sorted(IN_SLOT), BatchStatus.QUEUED, BatchStatus.PAUSED)
_SHOWN = 10
_POOLS = (
    Column("Pool", fills=True),
    Column("Members", right=True),
    *(Column(stage.capitalize(), right=True) for stage in Stage),
    Column("Next", right=True),
)


class Gates(NamedTuple):
    """Unfinished batches, and every resource pool, by what the store counts itself: a look that costs little."""

    batches: Survey | None
    pools: list[ResourcePool]
    now: Moment

    def document(self) -> dict[str, Any]:
        survey = self.batches
        listed = [] if survey is None else [batch_document(survey, batch) for batch in survey.batches]
        return {"batches": listed, "resources": [_document(pool) for pool in self.pools]}

    def draw(self, screen: Screen) -> None:
        if self.batches is not None and self.batches.batches:
            screen.heading("Batches")
            draw_batches(screen, self.batches)
        if self.pools:
            screen.heading("Resources")
            screen.table(_POOLS, [_row(pool, self.now) for pool in self.pools])


async def gates_of(store: "Store") -> Gates:
    from pitboss import wiring

    survey, has = None, capabilities(store)
    if has.batches is not None:
        unfinished = await has.batches.batches(statuses=_UNFINISHED, limit=_SHOWN)
        survey = await surveyed(store, unfinished) if unfinished else None
    pools = await has.resources.resource_pools() if has.resources is not None else []
    return Gates(survey, pools, wiring.SystemClock().now())


def _row(pool: ResourcePool, now: Moment) -> list[str]:
    stages = [f"{pool.stages.get(stage, 0):,}" for stage in Stage]
    return [pool.name, f"{pool.members:,}", *stages, ago(pool.next_at, now)]


def _document(pool: ResourcePool) -> dict[str, Any]:
    stages = {stage.value: count for stage, count in pool.stages.items()}
    return {"name": pool.name, "members": pool.members, "stages": stages, "next_at": utc(pool.next_at)}
