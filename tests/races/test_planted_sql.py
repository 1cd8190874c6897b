"""Bugs in one SQL statement of a real engine are found too."""

import asyncio
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from pitboss.engines.protocol import FullStore
from pitboss.engines.sqlite import SqliteEngine
from pitboss.testing.checker import Violation
from pitboss.testing.clock import FakeClock
from tests.races.workload import Workload

SEEDS = 40
STEPS = 80


class Mutant(NamedTuple):
    """A statement, what is changed in it, and a word of the promise that it breaks."""

    statement: str
    right: str
    wrong: str
    breaks: str
    seeds: int = SEEDS


MUTANTS = {
    "a session writes after its end": Mutant(
        "session_alive", "expires_at > ?", "expires_at > ? - 9000000", "live session"
    ),
    "a dead session comes back": Mutant("session_renew", "AND expires_at > ?2", "AND expires_at > 0", "live session"),
    "the living are reclaimed": Mutant(
        "reclaim_orphans", "expires_at > ?1", "expires_at > ?1 + 3000000", "one live claim"
    ),
    "claims of remote workers die with their session": Mutant(
        "reclaim_orphans", "AND pitboss_tasks.claim_expires_at IS NULL", "", "before its time limit|one live claim"
    ),
    "claims of remote workers are taken back too early": Mutant(
        "reclaim_ran_out", "claim_expires_at <= ?1", "claim_expires_at <= ?1 + 3000000", "before its time limit"
    ),
    "a sign of life is forgotten": Mutant(
        "settle_progress",
        "claim_expires_at = told.column4",
        "claim_expires_at = claim_expires_at",
        "refused only for a reason|before its time limit",
        # It shows in one of twenty seeds.
        seeds=4 * SEEDS,
    ),
    "a remote worker's claim has the number of the one before": Mutant(
        "claim_take_each", "claim = claim + 1", "claim = max(claim, 1)", "refused only for a reason|one live claim"
    ),
    "a claim number is used again": Mutant(
        "claim_take", "claim = claim + 1", "claim = claim + (losses = 0)", "refused only for a reason|one live claim"
    ),
    "a loss costs an attempt": Mutant(
        "reclaim_lose", "losses = losses + 1", "losses = losses + 1, attempts = attempts + 1", "cost an attempt"
    ),
    "a completion costs nothing": Mutant(
        "settle_completed", "attempts = attempts + 1", "attempts = attempts", "cost an attempt"
    ),
    "a completion loses its result": Mutant(
        "settle_completed", "result = told.column3", "result = NULL", "exactly once"
    ),
    "a key is never freed": Mutant("key_free", "until IS NULL", "until = 0", "unique key"),
    # By 1 s of 10, it shows in one or two of the 40 seeds only, and now and then in none.
    "a window is too short": Mutant("start_count", "at > ?", "at > ? + 3000000", "rate window"),
    "starts of one moment count once": Mutant(
        "start_add", "DO UPDATE SET n = n + excluded.n", "DO NOTHING", "rate window"
    ),
    "priority is ignored": Mutant("claim_next", "ORDER BY priority, id", "ORDER BY id", "lowest priority"),
    "delayed tasks take no room": Mutant("queue_waiting", "'scheduled', ", "", "capacity"),
    "a dead leader leads on": Mutant("leader_get", "expires_at > ?", "expires_at > ? - 9000000", "one session leads"),
    "a term is used twice": Mutant("leader_elect", "term = term + 1", "term = max(term, 1)", "one session leads"),
    "figures are overwritten": Mutant("count_add", "n = n + excluded.n", "n = excluded.n", "figures"),
}


def run(mutant: Mutant, folder: Path, seed: int) -> list[Violation]:
    async def open_store(clock: FakeClock) -> FullStore:
        engine = SqliteEngine(folder / f"{seed}.db", clock=clock)
        texts = dict(engine._statements.by_name)
        assert mutant.right in texts[mutant.statement], "the statement has changed: plant the bug anew"
        texts[mutant.statement] = texts[mutant.statement].replace(mutant.right, mutant.wrong)
        engine._statements.by_name = texts
        await engine.open()
        return engine

    return asyncio.run(Workload(open_store, seed).run(STEPS))


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_every_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    others: set[str] = set()
    for seed in range(mutant.seeds):
        for violation in run(mutant, tmp_path, seed):
            if re.search(mutant.breaks, f"{violation.invariant}: {violation.what}"):
                return
            others.add(violation.invariant)
    pytest.fail(f"not found in {mutant.seeds} seeds; found instead: {others or 'nothing'}")
