"""Members at fault are found, and innocent ones are left alone: by the rules and the engine that a manager uses.

`make soak` runs 200 seeds of each world; docs/explanation/resources.md has the figures.
"""

import pytest

from pitboss.model import outdone
from tests.simulate.guilt_world import BARS, PRECISION, WORLDS, Plan, Score, scored, total


@pytest.mark.parametrize("world", WORLDS)
def test_members_at_fault_are_found_within_25_uses(world: str) -> None:
    plan = WORLDS[world]
    scores = {rate: scored(plan._replace(rate=rate), 400 // plan.members) for rate in BARS}
    for rate, score in scores.items():
        assert score.recall >= BARS[rate], f"{rate}: {score}"
    assert total(scores.values()).precision >= PRECISION, scores


def test_without_the_comparison_they_are_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outdone, "at_fault", lambda *_: False)
    monkeypatch.setattr("tests.simulate.guilt_world.at_fault", lambda *_: False)
    score: Score = scored(Plan(rate=0.7), 5)
    assert score.recall < 0.5
