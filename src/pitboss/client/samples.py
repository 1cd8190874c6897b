"""Reads samples of figures: the newest first, a page at a time, and no more than a bound."""

from collections.abc import Callable, Sequence

from pitboss.engines.figure_protocol import Figures
from pitboss.model.duration import Moment, Span
from pitboss.model.figures import SPANS, Sample, bucket

MOST_READ = 20_000
_PAGE = 500


async def read_samples(
    figures: Figures,
    since: Moment,
    until: Moment,
    use: Callable[[Sample], None],
    *,
    most: int = MOST_READ,
    lengths: Sequence[Span] = SPANS,
) -> Moment | None:
    """Call `use` with each sample of this time, of these lengths; a long one that began before counts too.

    Of each length, at most about `most` are read. Where there are more, returns the moment from which on all were read.
    """
    first = since
    for length in lengths:
        first = max(first, await _read_length(figures, length, first, until, use, most))
    return first if first > since else None


async def _read_length(
    figures: Figures, length: Span, since: Moment, until: Moment, use: Callable[[Sample], None], most: int
) -> Moment:
    """Whole buckets only: a part of the managers would look like all of them."""
    left, size = most, _PAGE
    while left > 0:
        page = await figures.samples(bucket(since, length), until, span=length, limit=size, newest=True)
        oldest = page[-1].at if len(page) == size else since - length
        whole = [one for one in page if one.at > oldest]
        for one in whole:
            use(one)
        if len(page) < size:
            return since
        # More managers than that in one bucket: read it with a larger page.
        size = _PAGE if whole else size * 2
        left, until = left - len(whole), oldest + 1
    return until - 1 + length
