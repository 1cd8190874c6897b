"""Lanes: batches wait in line, change places, and are promoted in the act that frees a slot."""

from typing import Literal

import pytest

from pitboss.model.batch import Batch, BatchStatus, Cancel, Lane, Move, NewBatch, Pause, Resume, Start
from pitboss.model.errors import InvalidInput
from pitboss.model.filter import EVERYTHING
from pitboss.model.states import State
from pitboss.testing.conformance.batching import of
from pitboss.testing.conformance.bench import Bench
from pitboss.testing.conformance.waiting import SOON, silence

Place = Literal["top", "up", "down", "bottom"]
# More than the depth to which Python lets calls nest.
MANY = 600


async def line(bench: Bench) -> str:
    """The names of the queued batches, in their order."""
    return "".join(batch.name for batch in await bench.store.batches(statuses=[BatchStatus.QUEUED]))


async def lined_up(bench: Bench, names: str) -> dict[str, Batch]:
    """Batches with these names: the first runs, the others wait in line."""
    return {name: await of(bench, 1, name=name) for name in names}


async def status(bench: Bench, *batches: Batch) -> list[BatchStatus]:
    return [(await bench.batch(batch)).status for batch in batches]


class Lanes:
    async def test_a_lane_is_created_with_its_first_batch(self, bench: Bench) -> None:
        assert await bench.store.lanes() == []
        await of(bench, 1, lane="b")
        await of(bench, 1, lane="b")
        await of(bench, 1, lane="a")
        assert await bench.store.lanes() == [Lane(name="a", running=1), Lane(name="b", running=1, queued=1)]

    async def test_a_long_line_is_promoted_at_once(self, bench: Bench) -> None:
        await bench.widen("default", 0)
        for _ in range(MANY):
            await bench.store.create_batch(NewBatch(id=bench.new().id), [bench.new()])
        await bench.widen("default", 2 * MANY)
        assert await bench.store.lanes() == [Lane(name="default", max_running=2 * MANY, running=MANY)]

    async def test_a_lane_is_created_by_its_settings(self, bench: Bench) -> None:
        assert await bench.widen("fast", 3) == Lane(name="fast", max_running=3)
        assert await bench.store.lanes() == [Lane(name="fast", max_running=3)]

    async def test_lanes_do_not_touch_each_other(self, bench: Bench) -> None:
        one, other = await of(bench, 1, lane="a"), await of(bench, 1, lane="b")
        assert [one.status, other.status] == [BatchStatus.RUNNING] * 2

    async def test_a_lane_runs_as_many_as_it_may(self, bench: Bench) -> None:
        await bench.widen("default", 2)
        batches = [await of(bench, 1) for _ in range(3)]
        running, queued = BatchStatus.RUNNING, BatchStatus.QUEUED
        assert await status(bench, *batches) == [running, running, queued]

    async def test_more_room_promotes_at_once(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abcd")
        assert await bench.widen("default", 3) == Lane(name="default", max_running=3, running=3, queued=1)
        assert await line(bench) == "d"
        assert (await bench.batch(batches["b"])).started_at == bench.now

    async def test_less_room_lets_run_what_runs(self, bench: Bench) -> None:
        await bench.widen("default", 2)
        batches = [await of(bench, 1) for _ in range(3)]
        bench.forced = True
        assert await bench.widen("default", 1) == Lane(name="default", max_running=1, running=2, queued=1)
        await bench.complete(await bench.take())
        assert await status(bench, *batches[1:]) == [BatchStatus.RUNNING, BatchStatus.QUEUED]
        await bench.complete(await bench.take())
        assert await status(bench, batches[2]) == [BatchStatus.RUNNING]

    async def test_the_end_of_a_batch_promotes_the_next_in_the_same_act(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        bench.clock.advance(1)
        await bench.complete(await bench.take())
        after = await bench.batch(batches["b"])
        assert (after.status, after.position, after.started_at) == (BatchStatus.RUNNING, 0, bench.now)
        assert (await bench.batch(batches["c"])).position == 1

    async def test_one_end_promotes_one(self, bench: Bench) -> None:
        await lined_up(bench, "abc")
        claim = await bench.take()
        await bench.complete(claim)
        await bench.complete(claim)
        await bench.reclaim()
        assert await line(bench) == "c"

    async def test_promotion_is_heard(self, bench: Bench) -> None:
        await of(bench, 1)
        await bench.create(bench.new(queue="next"))
        claim = await bench.take()
        await silence(bench.store)
        await bench.complete(claim)
        assert await bench.store.wait(["next"], SOON)

    async def test_a_batch_that_ends_without_having_run_promotes_none(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        await bench.act(batches["b"], Cancel())
        assert await status(bench, *batches.values()) == [
            BatchStatus.RUNNING,
            BatchStatus.CANCELLED,
            BatchStatus.QUEUED,
        ]

    async def test_a_whole_line_comes_to_its_end(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abcde")
        seen = []
        for _ in range(5):
            claim = await bench.take()
            seen.append(claim.batch)
            await bench.complete(claim)
        assert seen == [batch.id for batch in batches.values()]
        assert await status(bench, *batches.values()) == [BatchStatus.DONE] * 5


class MovingBatches:
    @pytest.mark.parametrize(
        ("who", "to", "wanted"),
        [
            ("d", "top", "dbce"),
            ("b", "top", "bcde"),
            ("b", "bottom", "cdeb"),
            ("e", "bottom", "bcde"),
            ("d", "up", "bdce"),
            ("b", "up", "bcde"),
            ("c", "down", "bdce"),
            ("e", "down", "bcde"),
        ],
    )
    async def test_a_queued_batch_changes_its_place(self, bench: Bench, who: str, to: Place, wanted: str) -> None:
        batches = await lined_up(bench, "abcde")
        changed = await bench.act(batches[who], Move(to=to))
        assert await line(bench) == wanted
        assert changed.batch == await bench.batch(batches[who])

    @pytest.mark.parametrize(("who", "before", "wanted"), [("e", "c", "becd"), ("b", "e", "cdbe"), ("b", "c", "bcde")])
    async def test_a_batch_is_moved_before_another(self, bench: Bench, who: str, before: str, wanted: str) -> None:
        batches = await lined_up(bench, "abcde")
        await bench.act(batches[who], Move("before", batches[before].id))
        assert await line(bench) == wanted

    async def test_moves_can_be_repeated_for_ever(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abcd")
        for number in range(60):
            await bench.act(batches["bcd"[number % 3]], Move("before", batches["cdb"[number % 3]].id))
            await bench.act(batches["bcd"[number % 3]], Move("top"))
        assert await line(bench) == "dcb"

    async def test_a_moved_batch_is_promoted_in_its_turn(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        await bench.act(batches["c"], Move("top"))
        await bench.complete(await bench.take())
        assert (await bench.take()).batch == batches["c"].id

    async def test_a_batch_that_has_a_slot_is_not_moved(self, bench: Bench) -> None:
        batches = await lined_up(bench, "ab")
        with pytest.raises(InvalidInput):
            await bench.act(batches["a"], Move("bottom"))
        with pytest.raises(InvalidInput):
            await bench.act(batches["b"], Move("before", batches["a"].id))

    async def test_no_batch_is_moved_before_one_that_does_not_wait_there(self, bench: Bench) -> None:
        batches = await lined_up(bench, "ab")
        elsewhere = await of(bench, 1, lane="other")
        for other in (None, "unknown", elsewhere.id, batches["b"].id):
            with pytest.raises(InvalidInput):
                await bench.act(batches["b"], Move("before", other))
        assert await line(bench) == "b"

    async def test_other_lanes_have_lines_of_their_own(self, bench: Bench) -> None:
        await lined_up(bench, "abc")
        others = [await of(bench, 1, lane="other", name=name) for name in "xyz"]
        await bench.act(others[2], Move("top"))
        assert [(await bench.batch(batch)).position for batch in others] == [0, 2, 1]

    async def test_a_paused_batch_is_moved_too(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abcd")
        await bench.act(batches["d"], Pause())
        await bench.act(batches["d"], Move("top"))
        await bench.act(batches["d"], Resume())
        assert await line(bench) == "dbc"


class StartingBatches:
    async def test_a_batch_is_started_though_its_lane_is_full(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        bench.forced = True
        changed = await bench.act(batches["c"], Start())
        assert changed.batch is not None
        assert (changed.batch.status, changed.batch.position) == (BatchStatus.RUNNING, 0)
        assert {claim.batch for claim in await bench.claim(5)} == {batches["a"].id, batches["c"].id}
        assert await line(bench) == "b"

    async def test_one_end_of_two_promotes_none_while_the_lane_is_full(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        bench.forced = True
        await bench.act(batches["c"], Start())
        claims = await bench.claim(5)
        await bench.complete(claims[0])
        assert await line(bench) == "b"
        await bench.complete(claims[1])
        assert await line(bench) == ""

    async def test_a_paused_batch_is_started(self, bench: Bench) -> None:
        paused = await of(bench, 1, paused=True)
        await bench.act(paused, Start())
        assert (await bench.take()).batch == paused.id

    async def test_starting_what_runs_changes_nothing(self, bench: Bench) -> None:
        batch = await of(bench, 1)
        bench.clock.advance(1)
        await bench.act(batch, Start())
        assert await bench.batch(batch) == batch

    async def test_a_batch_that_has_ended_is_not_started(self, bench: Bench) -> None:
        batch = await of(bench, 0)
        for act in (Start(), Pause(), Resume()):
            with pytest.raises(InvalidInput):
                await bench.act(batch, act)

    async def test_a_started_batch_is_heard(self, bench: Bench) -> None:
        await of(bench, 1)
        batch = await bench.create(bench.new(queue="q"))
        await silence(bench.store)
        bench.forced = True
        await bench.act(batch, Start())
        assert await bench.store.wait(["q"], SOON)


class SweepingLanes:
    async def test_a_sweep_finds_nothing_to_promote_where_all_is_well(self, bench: Bench) -> None:
        await lined_up(bench, "abc")
        await bench.reclaim()
        assert await line(bench) == "bc"

    async def test_losses_end_no_batch(self, bench: Bench) -> None:
        batches = await lined_up(bench, "ab")
        await bench.take()
        await bench.end(bench.me)
        await bench.reclaim()
        assert (await bench.batch(batches["a"])).counts == {State.PENDING: 1}
        assert await line(bench) == "b"

    async def test_an_operator_who_cancels_all_items_ends_the_whole_line(self, bench: Bench) -> None:
        batches = await lined_up(bench, "abc")
        await bench.cancel(EVERYTHING)
        assert await status(bench, *batches.values()) == [BatchStatus.DONE] * 3
