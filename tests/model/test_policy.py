"""Impossible policies are refused when they are declared."""

import pytest

from pitboss.model.errors import InvalidInput
from pitboss.model.policy import Backoff, Policy, Rule


@pytest.mark.parametrize(
    "options",
    [
        {"base": -1},
        {"base": 10, "cap": 9},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="not a usable backoff"):
        Backoff(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"max_attempts": 0}, {"timeout": 0}, {"timeout": -5}])
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="not a usable policy"):
        Policy(**options)  # type: ignore[arg-type]


def test_a_category_without_a_rule_has_a_plain_one() -> None:
    policy = Policy(rules={"net": Rule(retry=True)})
    assert policy.rule("net") == Rule(retry=True)
    assert policy.rule("other") == Rule()


def test_a_huge_factor_is_capped_and_does_not_overflow() -> None:
    backoff = Backoff(base=1, factor=1e300, cap=60_000_000, jitter=0.0)
    assert backoff.delay(500, 0.5) == 60_000_000
