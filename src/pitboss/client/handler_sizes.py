"""How long the tasks of handlers take, and how much memory they need, by what managers have measured and stored."""

from collections.abc import Collection
from typing import NamedTuple

from pitboss.client.samples import read_samples
from pitboss.engines.figure_protocol import Figures
from pitboss.model.duration import Moment, Span
from pitboss.model.figures import HOUR, OTHERS, SPANS, Histogram, Sample

_MOST_SAMPLES, _FEW_SAMPLES = 5000, 2000
# The newest figures that there are: a fleet that stood still over a weekend remembers Friday.
_LOOKS_BACK: tuple[Span, ...] = (2 * HOUR, 24 * HOUR, 30 * 24 * HOUR)


class HandlerSizes(NamedTuple):
    """How long its runs took, and the bytes of memory that its tasks needed."""

    run: Histogram
    memory: Histogram


async def read_sizes(
    figures: Figures, since: Moment, until: Moment, *, most: int = _MOST_SAMPLES
) -> dict[str, HandlerSizes]:
    """What was measured of each handler in this time, in all queues: in the newest samples of each length, which are
    enough to say how it is."""
    found: dict[str, HandlerSizes] = {}

    def add(sample: Sample) -> None:
        for one in sample.handlers:
            if one.handler != OTHERS:
                sizes = found.setdefault(one.handler, HandlerSizes(Histogram(), Histogram()))
                sizes.run.merge(one.run)
                sizes.memory.merge(one.memory)

    for length in SPANS:
        await read_samples(figures, since, until, add, most=most, lengths=(length,))
    return found


async def recall_sizes(figures: Figures, now: Moment, wanted: Collection[str] = ()) -> dict[str, HandlerSizes]:
    """The newest figures of handlers: of the last two hours, or of an earlier time if nothing, or one of those that are
    wanted, did not run in these."""
    found = dict[str, HandlerSizes]()
    for back in _LOOKS_BACK:
        found = await read_sizes(figures, now - back, now, most=_FEW_SAMPLES) | found
        if found and all(name in found for name in wanted):
            break
    return found
