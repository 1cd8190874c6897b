"""Flows and samples."""

from collections.abc import Sequence

import msgspec

from pitboss.engines.memory.verbs import Verbs
from pitboss.model.duration import Moment, Span
from pitboss.model.figures import KINDS, Flow, Sample, SampleKey, added_flows, bucket, rolled
from pitboss.model.totals import EVER, EVER_BEGAN, Measured, Totals


class FigureVerbs(Verbs):
    """The protocol `Figures`."""

    async def flows(
        self,
        since: Moment,
        until: Moment,
        *,
        span: Span,
        queue: str | None = None,
        handler: str | None = None,
        by_handler: bool = False,
    ) -> list[Flow]:
        found = (
            one
            for (length, at), counts in self.tables.figures.flows.items()
            if since <= at < until
            for one in counts.flows(at, length)
        )
        wanted = (
            one
            for one in found
            if (queue is None or one.queue == queue) and (handler is None or one.handler == handler)
        )
        return added_flows(wanted, span, by_handler=by_handler)

    async def add_samples(self, samples: Sequence[Sample]) -> None:
        self._reach("add_samples.before")
        stored = self.tables.figures.samples
        for one in samples:
            if one.key not in stored:
                stored[one.key] = _copy(one)
                self.tables.figures.measured.add([one])
        self._reach("add_samples.after")

    async def samples(
        self, since: Moment, until: Moment, *, span: Span, limit: int = 100_000, newest: bool = False
    ) -> list[Sample]:
        found = (key for key in self.tables.figures.samples if since <= key.at < until and key.span == span)
        wanted = sorted(found, reverse=newest)
        return [_copy(self.tables.figures.samples[key]) for key in wanted[:limit]]

    async def totals(self) -> Totals:
        figures = self.tables.figures
        measured = msgspec.json.decode(msgspec.json.encode(figures.measured), type=Measured)
        return Totals(figures.ever.flows(EVER_BEGAN, EVER), measured)

    async def roll_flows(self, span: Span, into: Span | None, before: Moment, *, term: int) -> bool:
        self.check_term(term, self.clock.now())
        old = [at for length, at in self.tables.figures.flows if length == span and at < before]
        if not old:
            return False
        length = span if into is None else into
        first = bucket(min(old), length)
        taken = [(at, self.tables.figures.flows.pop((span, at))) for at in old if bucket(at, length) == first]
        if into is not None:
            self._put_flows(rolled((one for at, counts in taken for one in counts.flows(at, span)), into))
        return True

    async def replace_samples(self, gone: Sequence[SampleKey], made: Sequence[Sample], *, term: int) -> bool:
        self.check_term(term, self.clock.now())
        if any(key not in self.tables.figures.samples for key in gone):
            return False
        for key in set(gone):
            del self.tables.figures.samples[key]
        for one in made:
            self.tables.figures.samples[one.key] = _copy(one)
        return True

    def _put_flows(self, flows: list[Flow]) -> None:
        for one in flows:
            for kind in KINDS:
                if n := getattr(one, kind):
                    self.tables.figures.flows[one.span, one.at].add(kind, one.queue, one.handler, n)


def _copy(sample: Sample) -> Sample:
    """As it would come back from a store: the caller may go on with his."""
    return msgspec.json.decode(msgspec.json.encode(sample), type=Sample)
