"""Flows and samples. `model.figures` has the rules. Acts count in `count_deltas`, which sweeps fold into the flows.

Lock order: the leader's row, flows by bucket, queue and handler.
"""

from collections.abc import Iterable, Sequence

import msgspec

from pitboss.engines.postgres.leader import check_term
from pitboss.engines.postgres.reclaim import fold
from pitboss.engines.postgres.resources_and_batches import ResourcesAndBatches
from pitboss.engines.postgres.rows import numbers, texts
from pitboss.engines.postgres.script import Row, Script, Statements
from pitboss.model.duration import Moment, Span
from pitboss.model.figures import KINDS, Flow, Sample, SampleKey, bucket, rolled
from pitboss.model.totals import EVER, Measured, Totals

_encode = msgspec.json.encode
_sample = msgspec.json.Decoder(Sample)


class FigureProtocol(ResourcesAndBatches):
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
        asked = {"queue": queue, "handler": handler, "by_handler": by_handler}
        rows = await self._read("flow_list", since=since, until=until, span=span, **asked)
        return [_flow(row, span) for row in rows]

    async def add_samples(self, samples: Sequence[Sample]) -> None:
        await self._transact("add_samples", self._reading, lambda _now: _add(self._sql, samples))

    async def samples(
        self, since: Moment, until: Moment, *, span: Span, limit: int = 100_000, newest: bool = False
    ) -> list[Sample]:
        name = "sample_list_newest" if newest else "sample_list"
        rows = await self._read(name, since=since, until=until, span=span, limit=limit)
        return [_sample.decode(body) for (body,) in rows]

    async def totals(self) -> Totals:
        return await self._reading.call(lambda: _totals(self._sql))

    async def roll_flows(self, span: Span, into: Span | None, before: Moment, *, term: int) -> bool:
        return await self._transact(
            "roll_flows", self._reading, lambda now: _roll(self._sql, span, into, before, term, now)
        )

    async def replace_samples(self, gone: Sequence[SampleKey], made: Sequence[Sample], *, term: int) -> bool:
        return await self._transact(
            "replace_samples", self._reading, lambda now: _replace(self._sql, gone, made, term, now)
        )


def _add(sql: Statements, samples: Sequence[Sample]) -> Script[None]:
    """Managers that add to the total of all samples stand in line at its row."""
    added = yield sql.ask("sample_add", **_keys(one.key for one in samples), **_bodies(samples))
    keys = {SampleKey(*row) for row in added}
    if not keys:
        return
    yield sql.ask("total_begin").unheard()
    ((body,),) = yield sql.ask("total_lock")
    measured = msgspec.json.decode(body, type=Measured)
    measured.add({one.key: one for one in reversed(samples) if one.key in keys}.values())
    yield sql.ask("total_write", body=_encode(measured).decode()).unheard()


def _totals(sql: Statements) -> Script[Totals]:
    flows = yield sql.ask("total_list")
    body = yield sql.ask("total_measured")
    measured = msgspec.json.decode(body[0][0], type=Measured) if body else Measured()
    return Totals([_flow(row, EVER) for row in flows], measured)


def _roll(
    sql: Statements, span: Span, into: Span | None, before: Moment, term: int, now: Moment | None
) -> Script[bool]:
    yield from check_term(sql, now, term)
    yield fold(sql)
    ((oldest,),) = yield sql.ask("flow_oldest", span=span)
    if oldest is None or oldest >= before:
        return False
    length = span if into is None else into
    first = bucket(oldest, length)
    rows = yield sql.ask("flow_take", span=span, since=first, until=min(before, first + length))
    if into is not None:
        yield sql.ask("flow_add", **_columns(rolled((_flow(row, span) for row in rows), into))).unheard()
    return True


def _replace(
    sql: Statements, gone: Sequence[SampleKey], made: Sequence[Sample], term: int, now: Moment | None
) -> Script[bool]:
    yield from check_term(sql, now, term)
    ((done,),) = yield sql.ask("sample_remove", **_keys(gone))
    if done and made:
        yield sql.ask("sample_write", **_keys(one.key for one in made), **_bodies(made)).unheard()
    found: bool = done
    return found


def _flow(row: Row, span: Span) -> Flow:
    at, queue, handler, *counts = row
    return Flow(at=at, span=span, queue=queue, handler=handler, **dict(zip(KINDS, counts, strict=True)))


def _columns(flows: Sequence[Flow]) -> dict[str, object]:
    return {
        "spans": numbers([one.span for one in flows]),
        "ats": numbers([one.at for one in flows]),
        "queues": texts([one.queue for one in flows]),
        "handlers": texts([one.handler for one in flows]),
        **{f"{kind}s": numbers([getattr(one, kind) for one in flows]) for kind in KINDS},
    }


def _keys(keys: Iterable[SampleKey]) -> dict[str, object]:
    found = list(keys)
    return {
        "spans": numbers([one.span for one in found]),
        "ats": numbers([one.at for one in found]),
        "sessions": numbers([one.session for one in found]),
    }


def _bodies(samples: Iterable[Sample]) -> dict[str, object]:
    return {"bodies": texts([_encode(one).decode() for one in samples])}
