"""What a store runs on: its engine, schema and size, who leads, and the hosts of its managers."""

from collections.abc import Sequence

import msgspec

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import FullStore
from pitboss.model.duration import Moment
from pitboss.model.finding import Finding, Grade
from pitboss.model.fleet import ManagerView, live_managers
from pitboss.model.session import Lead
from pitboss.model.usage import StoreUsage
from pitboss.operate.status import check_store

_GRADES = (Grade.PROBLEM, Grade.WARNING, Grade.OK)


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The engine, the versions of the schema that it has and that this release needs (None: it has no schema), and its
    size (None: not known)."""

    kind: str
    schema: tuple[int, int] | None
    usage: StoreUsage | None


class SystemReading(msgspec.Struct, frozen=True, kw_only=True):
    """`findings` are the checks of `pitboss doctor` that need no look at the host, the worst first."""

    store: StoreFacts
    lead: Lead | None
    managers: Sequence[ManagerView]
    findings: Sequence[Finding]


async def read_store_facts(store: FullStore) -> StoreFacts:
    has = capabilities(store).schema
    return StoreFacts(
        kind=store.name, schema=None if has is None else await has.schema_version(), usage=await store.usage()
    )


async def read_system(store: FullStore, now: Moment, release: str = "") -> SystemReading:
    findings = await check_store(store, store.clock, release)
    return SystemReading(
        store=await read_store_facts(store),
        lead=await store.leader(),
        managers=live_managers(await store.sessions(), now),
        findings=sorted(findings, key=lambda one: _GRADES.index(one.grade)),
    )
