"""For engines whose store outlives the process: the schema's version, and what a reopened store still holds."""

from pitboss.engines.protocol import Maintenance, Outages, Schema
from pitboss.model.figures import RAW
from pitboss.model.finding import Grade
from pitboss.model.limits import rate
from pitboss.model.outcome import Failed
from pitboss.model.session import Reclaimed
from pitboss.model.settlement import APPLIED
from pitboss.model.states import State
from pitboss.model.task import Placed, Unique
from pitboss.testing.conformance.bench import BROKEN, Bench

_FOREVER = 2**62


class SchemaKeeping:
    async def test_an_opened_store_has_the_wanted_version(self, bench: Bench) -> None:
        assert isinstance(bench.store, Schema)
        has, wants = await bench.store.schema_version()
        assert has == wants > 0

    async def test_upgrading_what_is_current_does_nothing(self, bench: Bench) -> None:
        assert isinstance(bench.store, Schema)
        await bench.add()
        assert await bench.store.upgrade() == []
        assert len(await bench.every_task()) == 1


class Maintaining:
    async def test_a_store_in_use_is_sound_and_its_counts_are_right(self, bench: Bench) -> None:
        assert isinstance(bench.store, Maintenance)
        assert isinstance(bench.store, Outages)
        claim = await bench.started()
        await bench.add(queue="other")
        before = (await bench.every_task(), await bench.store.queues())
        await bench.store.probe()
        found = await bench.store.check()
        assert {finding.grade for finding in found} == {Grade.OK}
        assert "counts" in {finding.check for finding in found}
        assert await bench.store.recount() == 0
        assert (await bench.every_task(), await bench.store.queues()) == before
        assert (await bench.complete(claim)).applied

    async def test_a_recount_leaves_the_flows_as_they_are(self, bench: Bench) -> None:
        await bench.put(*(bench.new() for _ in range(3)))
        await bench.complete(await bench.take())
        assert isinstance(bench.store, Maintenance)
        before = await bench.store.flows(0, _FOREVER, span=RAW, by_handler=True)
        await bench.store.recount()
        assert await bench.store.flows(0, _FOREVER, span=RAW, by_handler=True) == before


class Reopening:
    async def test_what_was_put_is_there_after_the_store_was_closed(self, bench: Bench) -> None:
        await bench.change("q", capacity=5, rate=rate("7/m"), paused=True, by="ann")
        version = await bench.store.wish("pool", "1")
        claim = await bench.started(params='{"é":1}', unique=Unique("k"))
        await bench.report(claim, Failed(BROKEN), worker="w")
        before = (await bench.every_task(), await bench.store.queues(), await bench.history(claim))
        await _reopen(bench)
        assert (await bench.every_task(), await bench.store.queues(), await bench.history(claim)) == before
        assert [handler.name for handler in await bench.store.handlers()] == ["job"]
        assert [wish.version for wish in await bench.store.wishes()] == [version]
        assert await bench.store.sessions() == [bench.me]

    async def test_claims_and_sessions_outlive_the_engine(self, bench: Bench) -> None:
        claim = await bench.started()
        await _reopen(bench)
        assert (await bench.renew(bench.me)).alive
        assert await bench.complete(claim) == APPLIED

    async def test_a_repeated_put_after_a_lost_reply_is_harmless(self, bench: Bench) -> None:
        new = bench.new(unique=Unique("k"))
        await bench.put(new)
        await _reopen(bench)
        assert await bench.put(new) == [Placed(new.id, False, State.PENDING)]

    async def test_windows_outlive_the_engine(self, bench: Bench) -> None:
        await bench.change("default", rate=rate("1/s"))
        await bench.put(bench.new(), bench.new())
        await bench.take()
        await _reopen(bench)
        assert (await bench.ask()).next_due == bench.now + 1_000_000

    async def test_numbers_go_on_where_they_were(self, bench: Bench) -> None:
        version = await bench.store.wish("a", "1")
        await _reopen(bench)
        assert (await bench.session()).number > bench.me.number
        assert await bench.store.wish("a", "2") > version

    async def test_the_lead_outlives_the_engine_and_terms_go_on(self, bench: Bench) -> None:
        lead = await bench.store.campaign(bench.me.number)
        await _reopen(bench)
        assert await bench.store.campaign(bench.me.number) == lead
        await bench.store.resign(bench.me.number)
        await _reopen(bench)
        assert (await bench.store.campaign(bench.me.number)).term == lead.term + 1

    async def test_what_a_dead_session_held_is_reclaimed_by_the_next_engine(self, bench: Bench) -> None:
        await bench.started()
        await _reopen(bench)
        bench.clock.advance_to(bench.me.expires_at)
        assert await bench.reclaim() == Reclaimed(lost=1)

    async def test_closing_twice_and_opening_beside_is_harmless(self, bench: Bench) -> None:
        other = await bench.open_engine()
        await other.close()
        await other.close()
        assert (await bench.add()).state is State.PENDING


async def _reopen(bench: Bench) -> None:
    await bench.store.close()
    bench.store = await bench.open_engine()
