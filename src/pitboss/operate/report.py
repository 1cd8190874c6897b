"""Everything that a report of a time shows: how things are, how they went, and what went wrong."""

from contextlib import suppress

import msgspec

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import FullStore
from pitboss.model.duration import Moment, Span
from pitboss.model.errors import NotFound
from pitboss.model.filter import EVERYTHING
from pitboss.model.happening import Happening, Severity
from pitboss.operate.failures import FailureGroup, failure_groups
from pitboss.operate.figures import FigureReading, read_figures
from pitboss.operate.overview import Overview, read_overview
from pitboss.operate.status import Status, read_status

_POOLS, _FAILURES, _HAPPENINGS = 6, 20, 40
# Those that matter are a few among them.
_HAPPENINGS_READ = 2000


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The last part of a store's life. `resources` are figures by resource pool, `failures` those groups that grew in
    this time, with all their tasks; `happenings` are warnings and errors, newest first."""

    status: Status
    overview: Overview
    figures: FigureReading
    resources: dict[str, FigureReading]
    failures: tuple[FailureGroup, ...]
    happenings: tuple[Happening, ...]


async def read_report(store: FullStore, now: Moment, since: Span) -> Report:
    overview, figures = await read_overview(store, now, since), await read_figures(store, now, since=since)
    groups = await failure_groups(store, EVERYTHING)
    log = capabilities(store).happenings
    happenings = [] if log is None else await log.happenings(limit=_HAPPENINGS_READ, since=overview.since)
    return Report(
        status=await read_status(store, now),
        overview=overview,
        figures=figures,
        resources=await _resources(store, now, since),
        failures=tuple(one for one in groups.groups if one.last >= overview.since)[:_FAILURES],
        happenings=tuple(one for one in happenings if one.severity is not Severity.INFO)[:_HAPPENINGS],
    )


async def _resources(store: FullStore, now: Moment, since: Span) -> dict[str, FigureReading]:
    """Of the largest pools that have some."""
    has = capabilities(store)
    pools = [] if has.resources is None else await has.resources.resource_pools()
    found = {}
    for one in sorted(pools, key=lambda one: (-one.members, one.name))[:_POOLS]:
        with suppress(NotFound):
            found[one.name] = await read_figures(store, now, since=since, pool=one.name)
    return found
