"""Which worker owns which keys, as people read and change it; keys without a live slot are said with their reason."""

from typing import Any

import msgspec
import pytest

from pitboss.model.declared import Declared
from pitboss.model.errors import InvalidInput, NotFound, Refused
from pitboss.model.filter import parsed
from pitboss.model.finding import Grade
from pitboss.model.partition import Partitioning
from pitboss.model.queue import QueueChange, QueueSettings
from pitboss.model.session import Session, Slot
from pitboss.model.snapshot import PoolFigures, Snapshot, WorkerFigures, WorkerState
from pitboss.model.states import State
from pitboss.operate.documents import partitions_document, queue_document
from pitboss.operate.partitions import (
    PartitionsReading,
    SlotReading,
    find_slot,
    move_key,
    pin_key,
    read_partitions,
    unpin_key,
    validation,
)
from pitboss.operate.queues import find_queue
from pitboss.operate.status import read_status
from pitboss.testing.conformance import Bench, Subject

TABLE = {0: ("CA", "MT"), 1: ("TX",), 2: ("NY",)}
SPEC = Partitioning(by="{state}", mode="static", table=TABLE)
# The table of the state scraper: ten workers, fifty states and DC.
STATES = {
    0: ("CA", "MT", "RI", "MS", "ND"),
    1: ("TX", "WY", "VT", "WV", "SD"),
    2: ("FL", "AK", "NH", "NM", "DE"),
    3: ("NY", "ID", "ME", "NV", "HI"),
    4: ("PA", "UT", "MA", "NE", "NJ", "DC"),
    5: ("IL", "OR", "CT", "KS", "AR"),
    6: ("OH", "OK", "IA", "LA", "WI"),
    7: ("GA", "AZ", "KY", "SC", "MN"),
    8: ("NC", "WA", "AL", "CO", "IN"),
    9: ("MI", "TN", "MD", "MO", "VA"),
}
EVERY_STATE = tuple(sorted(key for keys in STATES.values() for key in keys))


async def divide(bench: Bench, **options: Any) -> None:
    spec = Partitioning(**{"by": "{state}", "mode": "static", "table": TABLE} | options)
    declared = Declared(app="app", queues={"targets": QueueSettings(partitions=spec)})
    await bench.store.declare(declared, session=bench.me.number)


async def seat(bench: Bench, *places: int, session: Session | None = None, pool: str = "web", node: str = "a") -> None:
    await bench.store.take_slots((session or bench.me).number, pool, node, places)


async def lead(bench: Bench, **owners: str) -> None:
    term = (await bench.store.campaign(bench.me.number)).term
    await bench.store.assign("targets", owners, term=term)


async def target(bench: Bench, *names: str) -> None:
    await bench.put(*(bench.new(queue="targets", params=f'{{"state":"{name}"}}') for name in names))


async def reading(bench: Bench) -> PartitionsReading:
    return await read_partitions(bench.store, "targets", bench.now)


def rows(found: PartitionsReading) -> dict[str, tuple[str, str, list[str], int, int]]:
    def row(one: SlotReading) -> tuple[str, str, list[str], int, int]:
        return one.state, one.node, [key.key for key in one.keys], one.count(State.PENDING), one.count(State.RUNNING)

    return {one.name: row(one) for one in found.slots}


class TestReading(Subject):
    async def test_slots_with_their_keys_and_tasks(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 0, 1)
        other = await bench.session("job")
        await seat(bench, 0, session=other, node="b")
        await target(bench, "CA", "CA", "MT", "TX")
        await lead(bench, CA="web/0", MT="web/0", TX="web/1", NY="web/2")
        await bench.ask(Slot(free=1, pool="web", number=1, queues=("targets",)))
        await bench.end(other)
        found = await reading(bench)
        assert rows(found) == {
            "web/0": ("alive", "a", ["CA", "MT"], 3, 0),
            "web/1": ("alive", "a", ["TX"], 0, 1),
            "web/2": ("away", "b", ["NY"], 0, 0),
        }
        assert [one.share for one in found.slots] == [0.75, 0.25, 0.0]
        assert found.skew == 2.25
        assert [(one.key.key, one.why.cause) for one in found.unowned] == [("NY", "slot-away")]
        assert found.slots[0].host == "here"

    async def test_a_slot_of_the_table_that_no_worker_has_is_missing(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 1)
        await target(bench, "CA", "ZZ")
        await lead(bench, CA="web/0")
        found = await reading(bench)
        assert [(one.name, one.state) for one in found.slots] == [
            ("web/0", "missing"),
            ("web/1", "alive"),
            ("web/2", "missing"),
        ]
        assert {one.key.key: one.why.cause for one in found.unowned} == {"CA": "slot-missing", "ZZ": "not-in-table"}

    async def test_the_worker_in_a_slot_is_named(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 0, 1)
        workers = tuple(WorkerFigures(name=f"web-{n}", pool="web", state=WorkerState.IDLE) for n in (1, 2))
        shot = Snapshot(pools=(PoolFigures(name="web", concurrency=1),), workers=workers)
        await bench.renew(bench.me, msgspec.json.encode(shot).decode())
        assert [one.worker for one in (await reading(bench)).slots] == ["web-1", "web-2", ""]

    async def test_a_table_counts_the_slots_of_its_pool(self, bench: Bench) -> None:
        await divide(bench, pool="web")
        await seat(bench, 0)
        await seat(bench, 0, pool="api")
        assert [one.name for one in (await reading(bench)).slots] == ["web/0", "web/1", "web/2"]

    async def test_keys_of_a_queue_that_any_slot_takes_are_never_without_one(self, bench: Bench) -> None:
        await divide(bench, mode="affinity", table={})
        await target(bench, "CA")
        found = await reading(bench)
        assert (found.slots, found.unowned) == ((), ())

    async def test_the_document_has_it_all(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 1)
        await target(bench, "CA", "TX")
        await lead(bench, CA="web/0", TX="web/1")
        document = partitions_document(await reading(bench))
        assert msgspec.json.decode(msgspec.json.encode(document)) == document
        assert document["slots"][1] == {
            "slot": "web/1",
            "state": "alive",
            "worker": None,
            "node": "a",
            "host": "here",
            "share": 0.5,
            "keys": [
                {
                    "key": "TX",
                    "owner": "web/1",
                    "moving_to": None,
                    "pinned": None,
                    "epoch": 1,
                    "counts": {"pending": 1},
                }
            ],
        }
        assert document["unowned"][0]["cause"] == "slot-missing"
        queue = queue_document(await find_queue(bench.store, "targets"))
        assert queue["partitions"]["table"] == {"0": ["CA", "MT"], "1": ["TX"], "2": ["NY"]}

    async def test_a_queue_without_partitions_is_refused(self, bench: Bench) -> None:
        await bench.add()
        with pytest.raises(InvalidInput, match='queue "default" has no partitions'):
            await read_partitions(bench.store, "default", bench.now)


class TestFilter(Subject):
    async def test_tasks_are_found_by_their_key(self, bench: Bench) -> None:
        await divide(bench, mode="affinity", table={})
        await target(bench, "CA", "CA", "C%", "TX")
        await bench.add(queue="targets", params="{}")
        await bench.add()
        for text, number in (
            ("partition:CA", 2),
            ("partition:C*", 3),
            ("partition:C%", 1),
            ("partition:CA,TX", 3),
            ("-partition:CA", 4),
            ("-partition:*", 2),
            ("partition:CA state:running", 0),
        ):
            assert (await bench.store.count(parsed(text))).number == number, text
        page = await bench.store.find(parsed("partition:TX"))
        assert [task.partition for task in page.tasks] == ["TX"]


class TestChanging(Subject):
    async def test_a_key_goes_to_another_slot(self, bench: Bench) -> None:
        await divide(bench, mode="balanced", table={})
        await seat(bench, 0, 1)
        await target(bench, "CA")
        await lead(bench, CA="web/0")
        moved = await move_key(bench.store, "targets", "CA", "1", bench.now)
        assert (moved.owner, moved.moving_to, moved.pinned) == ("web/1", None, None)
        pinned = await pin_key(bench.store, "targets", "CA", "web/0", bench.now)
        assert (pinned.owner, pinned.pinned) == ("web/0", "web/0")
        free = await unpin_key(bench.store, "targets", "CA", bench.now)
        assert (free.key.owner, free.key.pinned) == ("web/0", None)
        assert (free.pinned, free.home) == ("web/0", None)
        again = await unpin_key(bench.store, "targets", "CA", bench.now)
        assert again.pinned is None

    async def test_a_running_task_keeps_its_key_until_it_ends(self, bench: Bench) -> None:
        await divide(bench, mode="balanced", table={})
        await seat(bench, 0, 1)
        await target(bench, "CA")
        await lead(bench, CA="web/0")
        await bench.ask(Slot(free=1, pool="web", number=0, queues=("targets",)))
        moved = await move_key(bench.store, "targets", "CA", "1", bench.now)
        assert (moved.owner, moved.moving_to, moved.counts) == ("web/0", "web/1", {State.RUNNING: 1})
        assert [one.key for one in (await reading(bench)).moving] == ["CA"]

    async def test_what_does_not_exist_is_not_found(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 0, 1)
        await target(bench, "CA")
        for key, slot, said in (
            ("CAL", "0", "did you mean CA?"),
            ("QQ", "0", "its keys are CA, MT, NY, TX"),
            ("CA", "7", "its slots are web/0, web/1, web/2"),
            ("CA", "wep/1", "did you mean web/1?"),
        ):
            with pytest.raises(NotFound) as caught:
                await move_key(bench.store, "targets", key, slot, bench.now)
            assert said in f"{caught.value.why} {caught.value.fix}"
            with pytest.raises(NotFound):
                await pin_key(bench.store, "targets", key, slot, bench.now)

    async def test_a_table_stands_above_a_move_and_a_pin_above_the_table(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 0, 1)
        await target(bench, "CA", "ZZ")
        await lead(bench, CA="web/0")
        with pytest.raises(Refused, match="the leader would move it back") as caught:
            await move_key(bench.store, "targets", "CA", "1", bench.now)
        assert caught.value.fix.startswith("pitboss partitions pin targets CA web/1")
        assert (await pin_key(bench.store, "targets", "CA", "1", bench.now)).owner == "web/1"
        assert (await move_key(bench.store, "targets", "ZZ", "1", bench.now)).owner == "web/1"

    async def test_a_pin_stands_above_a_move(self, bench: Bench) -> None:
        """It said that the key moves, and the leader moved it back."""
        await divide(bench, mode="balanced", table={})
        await seat(bench, 0, 1)
        await target(bench, "CA")
        await lead(bench, CA="web/0")
        await pin_key(bench.store, "targets", "CA", "1", bench.now)
        with pytest.raises(Refused, match="cannot be moved to web/0") as caught:
            await move_key(bench.store, "targets", "CA", "0", bench.now)
        assert caught.value.why == "it is pinned to web/1, and the leader would move it back"
        assert caught.value.fix.endswith("pitboss partitions pin targets CA --off")
        assert (await move_key(bench.store, "targets", "CA", "1", bench.now)).owner == "web/1"

    async def test_the_end_of_a_pin_says_where_the_table_has_the_key(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 0, 1)
        await target(bench, "CA")
        await lead(bench, CA="web/0")
        await pin_key(bench.store, "targets", "CA", "1", bench.now)
        ended = await unpin_key(bench.store, "targets", "CA", bench.now)
        assert (ended.key.owner, ended.pinned, ended.home) == ("web/1", "web/1", "web/0")

    async def test_a_slot_may_be_named_without_its_pool_if_there_is_one(self, bench: Bench) -> None:
        await divide(bench, mode="balanced", table={})
        await seat(bench, 0)
        await seat(bench, 0, pool="api")
        found = await reading(bench)
        with pytest.raises(NotFound, match="has no slot 0"):
            find_slot(found, "0")
        assert find_slot(found, "api/0") == "api/0"


class TestStatus(Subject):
    async def test_keys_that_no_live_slot_has_are_a_warning(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 1)
        await target(bench, *["TX"] * 20, "CA", "CA", "MT", "ZZ")
        await lead(bench, CA="web/0", MT="web/0", TX="web/1", NY="web/2")
        status = await read_status(bench.store, bench.now)
        found = [(one.grade, one.what, one.why) for one in status.findings if one.check == "partitions"]
        assert found == [
            (
                Grade.WARNING,
                'queue "targets": 1 task of 1 key waits without a live slot: ZZ',
                "ZZ is owned by no slot: it is not in the table of partitions",
            ),
            (
                Grade.WARNING,
                'queue "targets": 3 tasks of 2 keys wait without a live slot: CA, MT',
                "CA belongs to slot web/0, which no worker has; start it, or set on_missing",
            ),
        ]

    async def test_all_is_well_if_every_key_has_a_live_slot(self, bench: Bench) -> None:
        await divide(bench)
        await seat(bench, 1)
        await target(bench, "TX")
        await lead(bench, CA="web/0", TX="web/1")
        status = await read_status(bench.store, bench.now)
        (found,) = [one for one in status.findings if one.check == "partitions"]
        assert (found.grade, found.what) == (Grade.OK, "every key with waiting tasks has a live slot (1 queue)")

    async def test_two_pools_that_serve_a_table_are_a_warning(self, bench: Bench) -> None:
        await divide(bench)
        pools = tuple(PoolFigures(name=name, concurrency=1) for name in ("web", "api"))
        await bench.renew(bench.me, msgspec.json.encode(Snapshot(pools=pools)).decode())
        status = await read_status(bench.store, bench.now)
        (found,) = [one for one in status.findings if one.check == "partitions"]
        assert found.what.startswith('worker pools api, web serve queue "targets"')
        assert 'declare pool="api"' in found.fix
        await divide(bench, pool="web")
        status = await read_status(bench.store, bench.now)
        assert [one.grade for one in status.findings if one.check == "partitions"] == [Grade.OK]

    async def test_a_store_without_partitions_says_nothing_of_them(self, bench: Bench) -> None:
        await bench.add()
        status = await read_status(bench.store, bench.now)
        assert not [one for one in status.findings if one.check == "partitions"]

    async def test_a_limit_per_key_can_be_set_above_the_declared_one(self, bench: Bench) -> None:
        await divide(bench)
        changed = await bench.store.change_queue("targets", QueueChange(max_per_key=3))
        assert (changed.max_per_key, changed.limited) == (3, ("max_per_key",))


def test_the_table_of_the_document_is_valid() -> None:
    found = validation("targets", Partitioning(by="{state}", mode="static", table=STATES, keys=EVERY_STATE))
    assert found.valid
    assert found.facts == (
        "10 slots",
        "5 keys per slot (slot 4 has 6)",
        "51 total keys",
        "No duplicates",
        "No missing keys",
    )


def test_the_skew_follows_from_weights_or_else_from_tasks() -> None:
    weighted = msgspec.structs.replace(SPEC, weights={"CA": 2.0, "TX": 1.0, "NY": 1.0, "MT": 0.5})
    found = validation("t", weighted, {"NY": 100.0})
    assert found.facts[-1] == "The largest slot (0) has 1.67 times the mean work, by weight"
    found = validation("t", SPEC, {"NY": 2.0, "TX": 1.0})
    assert found.facts[-1] == "The largest slot (2) has 2.00 times the mean work, by waiting tasks"
    assert "Missing keys are not checked: keys= is not declared" in found.facts
    assert validation("t", SPEC).skew is None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({0: ("CA", "TX"), 1: ("TX", "NY")}, "keys in two slots: TX (slots 0, 1)"),
        ({0: ("CA", "CA", "TX"), 1: ("NY",)}, "keys twice in one slot: CA (slot 0)"),
        ({0: ("CA",), 1: ("NY",)}, "missing keys: TX"),
        ({0: ("CA", "TX"), 1: ("NY", "QQ")}, "unknown keys: QQ"),
        ({0: ("CA", "TX", "NY"), 1: ()}, "slots without keys: 1"),
        ({0: ("CA", "TX"), 2: ("NY",)}, "slots that are left out: 1"),
        ({-1: ("CA",), 0: ("TX", "NY")}, "slot numbers below 0: -1"),
        ({}, "no slots: the table is empty"),
    ],
)
def test_each_broken_table_is_refused_with_what_is_wrong(table: dict[int, tuple[str, ...]], said: str) -> None:
    spec = Partitioning(by="{state}", mode="static", table=table, keys=("CA", "TX", "NY"))
    found = validation("t", spec)
    assert not found.valid
    assert said in found.problems
