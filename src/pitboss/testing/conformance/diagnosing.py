"""Diagnosis: what an engine reports about its own store."""

from pitboss.engines.protocol import Diagnosis
from pitboss.model.finding import Grade
from pitboss.testing.conformance.bench import Bench


class Diagnosing:
    async def test_every_problem_comes_with_why_and_fix(self, bench: Bench) -> None:
        assert isinstance(bench.store, Diagnosis)
        found = await bench.store.diagnose(bench.clock)
        assert "durability" in {finding.check for finding in found}
        for finding in found:
            assert finding.what
            assert bool(finding.why) == bool(finding.fix) == (finding.grade is not Grade.OK)

    async def test_a_diagnosis_changes_nothing(self, bench: Bench) -> None:
        assert isinstance(bench.store, Diagnosis)
        claim = await bench.started()
        before = (await bench.every_task(), await bench.store.queues(), await bench.store.sessions())
        await bench.store.diagnose(bench.clock)
        assert (await bench.every_task(), await bench.store.queues(), await bench.store.sessions()) == before
        assert (await bench.complete(claim)).applied
