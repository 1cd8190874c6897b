"""How long the tasks of handlers take, and how much memory they need, by what managers have measured and stored."""

from typing import NamedTuple

from pitboss.client.samples import read_samples
from pitboss.engines.figure_protocol import Figures
from pitboss.model.duration import Moment, Span
from pitboss.model.figures import HOUR, OTHERS, Histogram, Sample

# The newest figures that there are: a fleet that stood still over a weekend remembers Friday.
_LOOKS_BACK: tuple[Span, ...] = (2 * HOUR, 24 * HOUR, 30 * 24 * HOUR)


class HandlerSizes(NamedTuple):
    """How long its runs took, and the bytes of memory that its tasks needed."""

    run: Histogram
    memory: Histogram


async def read_sizes(figures: Figures, since: Moment, until: Moment) -> dict[str, HandlerSizes]:
    """What was measured of each handler in this time, in all queues."""
    found: dict[str, HandlerSizes] = {}

    def add(sample: Sample) -> None:
        for one in sample.handlers:
            if one.handler != OTHERS:
                sizes = found.setdefault(one.handler, HandlerSizes(Histogram(), Histogram()))
                sizes.run.merge(one.run)
                sizes.memory.merge(one.memory)

    await read_samples(figures, since, until, add)
    return found


async def recall_sizes(figures: Figures, now: Moment) -> dict[str, HandlerSizes]:
    """The newest figures of handlers: of the last two hours, or of an earlier time if nothing ran in these."""
    found = dict[str, HandlerSizes]()
    for back in _LOOKS_BACK:
        found = await read_sizes(figures, now - back, now)
        if found:
            break
    return found
