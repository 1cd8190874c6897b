"""Resources, partitions and figures with something of everything, for the pages about workers and what they need."""

import msgspec

from pitboss.engines.protocol import FullStore
from pitboss.model.declared import Declared
from pitboss.model.duration import SECOND
from pitboss.model.figures import RAW, HandlerFigures, Histogram, PoolSample, ResourceSample, Sample, bucket
from pitboss.model.limits import Window
from pitboss.model.partition import PartitionChange, Partitioning
from pitboss.model.queue import HandlerInfo, QueueSettings
from pitboss.model.resource import (
    Leased,
    Limits,
    NewResource,
    PoolRules,
    Report,
    ResourceChange,
    ResourceOutcome,
    Want,
)

# Those of a store without anything.
PAGES = ["/workers", "/workers?state=idle&page=2", "/resources", "/partitions"]
# Those of what `furnish_fleet` makes. The first manager has session 1.
DETAILS = [
    "/workers?state=restarting",
    "/workers?pool=default&host=box1",
    "/pools/default",
    "/workers/1/default-0",
    "/workers/1/default-2",
    "/workers/1/default-4",
    "/resources/accounts",
    "/resources/accounts?condition=blacklisted",
    "/resources/proxies",
    "/resources/accounts/a-1",
    "/resources/accounts/a-2",
    "/resources/accounts/a-3",
    "/partitions/targets",
    "/partitions/targets?q=C",
    "/partitions/targets?slot=default/1",
]
SECRET = "a-sealed-secret-that-no-page-shows"


async def furnish_fleet(store: FullStore, session: int, hostile: str) -> None:
    """A resource pool with members of every condition, a queue with partitions, and figures of the last minutes."""
    await _members(store, hostile)
    table = {0: ("CA", "TX"), 1: ("NY",), 2: ("WA",)}
    spec = Partitioning(by="{state}", mode="static", table=table, weights={"CA": 3, "TX": 2, "NY": 2, "WA": 1})
    await store.declare(Declared(app="app", queues={"targets": QueueSettings(partitions=spec, max_per_key=2)}))
    await store.take_slots(session, "default", "box1", [0, 1])
    for key, slot in (("CA", 0), ("TX", 0), ("NY", 1), ("WA", 2)):
        await store.change_partition("targets", key, PartitionChange(owner=f"default/{slot}"))
    await store.change_partition("targets", hostile, PartitionChange(owner="default/0", pinned="default/0"))
    await store.add_samples(_samples(store.clock.now(), session, hostile))


async def _members(store: FullStore, hostile: str) -> None:
    limits = Limits(windows=(Window(60, 60 * SECOND),), min_delay=SECOND // 2, concurrency=2)
    await store.declare_pool("accounts", PoolRules(limits=limits, max_failures=1), by="app")
    members = [
        NewResource(
            name=f"a-{place}",
            fields=msgspec.json.encode({"user": hostile, "url": f"http://u:{SECRET}@host/"}).decode(),
            secrets={"password": SECRET, "cookie": SECRET},
            labels=("eu", "fast") if place % 2 else ("us",),
        )
        for place in range(9)
    ]
    await store.add_resources("accounts", members)
    outcomes = [ResourceOutcome.OK, ResourceOutcome.BLOCKED, ResourceOutcome.RESOURCE_ERROR, ResourceOutcome.BLOCKED]
    for place, outcome in enumerate(outcomes):
        got = await store.acquire("accounts", Want(), 60 * SECOND, lease=f"lease-{place}")
        assert isinstance(got, Leased)
        await store.release(f"lease-{place}", Report(outcome=outcome, error=hostile, destination="shop.example"))
    await store.acquire("accounts", Want(), 3600 * SECOND, lease="held")
    await store.change_resources("accounts", ["a-8"], ResourceChange(enabled=False, reason=hostile))
    await store.limit_pool("accounts", {"per_minute": 50}, by=hostile)
    # Once any handler is known, tasks of unknown ones are held.
    handlers = [HandlerInfo(name="send", queue="mail"), HandlerInfo(name="visit", queue="scrape", resources="accounts")]
    await store.register(handlers)


def _samples(now: int, session: int, hostile: str) -> list[Sample]:
    """Every ten seconds of the last half hour, in which the members go away one by one."""
    found = []
    for ago in range(1, 180):
        away = max(0, 6 - ago // 25)
        run = Histogram()
        run.add(2 * SECOND)
        run.add(9 * SECOND)
        found.append(
            Sample(
                at=bucket(now, RAW) - ago * RAW,
                session=session,
                covered=10,
                led=10,
                handlers=[HandlerFigures("mail", hostile, 2, Histogram(), run)],
                pools={
                    "default": PoolSample(
                        {"idle": 20, "processing": 10 + ago % 7, "restarting": 5 if ago % 40 < 3 else 0},
                        memory=10 * (300 + ago),
                        restarts=int(ago % 40 == 0),
                        crashes=int(ago % 80 == 0),
                    )
                },
                resources={
                    "accounts": ResourceSample(
                        {"ready": 10 * (8 - away), "cooling": 10 * (away - away // 3), "blacklisted": 10 * (away // 3)},
                        usable=10 * (8 - away),
                        uses=12,
                        limits_met=1,
                        refusals={"shop.example": away // 2, hostile: int(ago % 10 == 0)},
                        destinations={"shop.example": 6, "parts.example": 4, hostile: 2},
                    )
                },
            )
        )
    return found
