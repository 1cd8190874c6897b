"""Members judged by comparison: one is at fault if tasks fail with it that then succeed with others, whatever they
raised.

A failure counts once the same task has succeeded with another member, so a task that never succeeds counts against no
member. Of each member the newest comparable uses are kept as the bits of one number: a leading 1, then a bit for each
use, 1 if it failed.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import comb
from typing import NamedTuple

# How many uses are kept. A member that was always good and now fails every task is found after nine of them.
KEPT = 32
# A member is suspected if its rate of failures is above this, as surely as this. Before its first use, its rate is
# thought to be Beta(1, 5): one failure in six.
RATE, SURE = 0.13, 0.95
_PRIOR_FAILED, _PRIOR_OK = 1, 5
_FULL = 1 << KEPT


class Evidence(NamedTuple):
    """How many of the newest uses of a member that can be compared `failed`."""

    failed: int
    uses: int

    def __str__(self) -> str:
        return f"failed {self.failed} of {self.uses} tasks that then succeeded with others"


def noted(compared: int, *, failed: bool) -> int:
    """The uses of a member with one more; the oldest is forgotten if there are too many."""
    longer = (compared or 1) << 1 | failed
    return longer if longer < _FULL << 1 else longer & (_FULL - 1) | _FULL


def evidence(compared: int) -> Evidence:
    return Evidence(compared.bit_count() - 1, compared.bit_length() - 1) if compared else Evidence(0, 0)


def suspected(compared: int) -> bool:
    """Whether a member fails so often that it may be at fault: then, and only then, look at the others."""
    return _is_above(evidence(compared), RATE)


def at_fault(compared: int, others: Sequence[int]) -> bool:
    """Whether the member is to blame, and not something that all members have in common.

    `others` are the uses of the other enabled members of its pool. After an outage that all members shared, tasks
    succeed that had failed with any of them. So the member must be worse than twice the rate of the better quarter.
    """
    return suspected(compared) and _is_above(evidence(compared), max(RATE, 2 * _usual(others)))


def _usual(others: Sequence[int]) -> float:
    rates = sorted(found.failed / found.uses if found.uses else 0.0 for found in map(evidence, others))
    return rates[len(rates) // 4] if rates else 0.0


def _is_above(found: Evidence, rate: float) -> bool:
    return found.failed > 0 and rate < 1 and _chance_above(found.failed, found.uses - found.failed, rate) > SURE


@lru_cache(maxsize=4096)
def _chance_above(failed: int, ok: int, rate: float) -> float:
    """The chance that the true rate is above this one, after these uses: the upper tail of a Beta distribution.

    Its parameters are whole numbers, so this is exact: the chance of fewer than `a` successes in `a + b - 1` draws.
    """
    a, b = _PRIOR_FAILED + failed, _PRIOR_OK + ok
    draws = a + b - 1
    return sum(comb(draws, hits) * rate**hits * (1 - rate) ** (draws - hits) for hits in range(a))
