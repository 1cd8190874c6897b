"""Flows and samples. `model.figures` has the rules; acts add to the flows through `Act.happened`."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pitboss.engines.sqlite.act import Act, Row
from pitboss.engines.sqlite.calls import Calls
from pitboss.engines.sqlite.registry import check_term
from pitboss.model.duration import Moment, Span
from pitboss.model.figures import KINDS, Flow, Sample, SampleKey, bucket, rolled
from pitboss.model.totals import EVER, EVER_BEGAN, Measured, Totals

_encode = msgspec.json.encode
_sample = msgspec.json.Decoder(Sample)


class FigureVerbs(Calls):
    """The protocol `Figures`, each verb as one request to the store."""

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
        asked = (span, since, until, queue, handler, int(by_handler))
        return await self._read(lambda reader: [_flow(row, span) for row in reader.rows("flow_list", *asked)])

    async def add_samples(self, samples: Sequence[Sample]) -> None:
        await self._write("add_samples", lambda act: add_samples(act, samples), len(samples))

    async def samples(
        self, since: Moment, until: Moment, *, span: Span, limit: int = 100_000, newest: bool = False
    ) -> list[Sample]:
        name = "sample_list_newest" if newest else "sample_list"
        return await self._read(
            lambda reader: [_sample.decode(row[0]) for row in reader.rows(name, span, since, until, limit)]
        )

    async def totals(self) -> Totals:
        return await self._read(
            lambda reader: Totals(
                [_flow(row, EVER) for row in reader.rows("total_list")], _measured(reader.rows("total_measured"))
            )
        )

    async def roll_flows(self, span: Span, into: Span | None, before: Moment, *, term: int) -> bool:
        return await self._write("roll_flows", lambda act: roll_flows(act, span, into, before, term))

    async def replace_samples(self, gone: Sequence[SampleKey], made: Sequence[Sample], *, term: int) -> bool:
        rows = [_sample_row(one) for one in made]
        return await self._write("replace_samples", lambda act: replace_samples(act, gone, rows, term), len(gone))


def add_samples(act: Act, samples: Sequence[Sample]) -> None:
    """As the contract says."""
    new = [one for one in samples if act.run("sample_add", *_sample_row(one))]
    if new:
        measured = _measured(act.rows("total_measured"))
        measured.add(new)
        act.run("sample_write", EVER, EVER_BEGAN, 0, _encode(measured).decode())


def roll_flows(act: Act, span: Span, into: Span | None, before: Moment, term: int) -> bool:
    """As the contract says."""
    check_term(act, term)
    row: Any = act.one("flow_oldest", span)
    if row is None or row[0] is None or row[0] >= before:
        return False
    length = span if into is None else into
    first = bucket(row[0], length)
    rows: Iterable[Any] = list(act.rows("flow_take", span, first, min(before, first + length)))
    if into is not None:
        made = rolled((_flow(taken, span) for taken in rows), into)
        act.bulk("flow_add", [_flow_row(one) for one in made])
    return True


def replace_samples(act: Act, gone: Sequence[SampleKey], made: Sequence[Row], term: int) -> bool:
    """As the contract says."""
    check_term(act, term)
    act.savepoint()
    if sum(act.run("sample_remove", *key) for key in set(gone)) < len(set(gone)):
        act.roll_back()
        return False
    act.release_savepoint()
    act.bulk("sample_write", made)
    return True


def _measured(rows: Iterable[Any]) -> Measured:
    """The total of all samples; there is none before the first one."""
    return next((msgspec.json.decode(row[0], type=Measured) for row in rows), None) or Measured()


def _flow(row: Sequence[Any], span: Span) -> Flow:
    at, queue, handler, *counts = row
    return Flow(at=at, span=span, queue=queue, handler=handler, **dict(zip(KINDS, counts, strict=True)))


def _flow_row(flow: Flow) -> Row:
    return (flow.span, flow.at, flow.queue, flow.handler, *(getattr(flow, kind) for kind in KINDS))


def _sample_row(sample: Sample) -> Row:
    return (*sample.key, _encode(sample).decode())
