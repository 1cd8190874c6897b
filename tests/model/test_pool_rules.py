"""Rules of a pool as keys: what differs, and what an operator sets above what is declared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.duration import SECOND
from pitboss.model.pool_rules import changes_text, differences, effective, keys_of, limited, with_keys
from pitboss.model.resource import Declaration, OperatorLimits, PoolRules
from pitboss.model.resource_keys import checked_keys, rules_of

counts = st.integers(1, 100)
times = st.integers(0, 10**10)
keys = st.fixed_dictionaries(
    {},
    optional={
        "per_second": counts,
        "per_minute": counts,
        "per_hour": counts | st.just("none"),
        "per_day": counts,
        "rate": st.sampled_from(["5/10s", "3/7s, 2/1500ms", "20/h", "20/h, 9/10s", "none"]),
        "min_delay": times,
        "jitter": times,
        "delay_from": st.sampled_from(["start", "end"]),
        "concurrency": counts | st.just("none"),
        "guard": times,
        "strategy": st.sampled_from(["weighted", "sticky"]),
        "away": st.just("rebind"),
        "max_failures": counts,
        "cooldown": times,
        "blacklist": times,
        "max_ejected": st.sampled_from([0.25, 1.0]),
    },
)


def rules(**values: Any) -> PoolRules:
    return rules_of(checked_keys(values))


@given(values=keys)
def test_rules_are_the_same_again_when_made_of_their_keys(values: dict[str, Any]) -> None:
    made = rules_of(keys_of(rules_of(values)))
    # Of two windows of one length only the tighter one is kept.
    assert rules_of(keys_of(made)) == made
    assert differences(rules_of(values), made) == []


@given(declared=keys, values=keys)
def test_keys_above_rules_hold_and_hold_again(declared: dict[str, Any], values: dict[str, Any]) -> None:
    after = with_keys(rules_of(declared), values)
    assert with_keys(after, values) == after
    assert with_keys(rules_of(declared), {}) == rules_of(keys_of(rules_of(declared)))


@pytest.mark.parametrize(
    ("declared", "values", "changes"),
    [
        ({"per_hour": 50}, {"per_hour": 20}, "per_hour 50 → 20"),
        ({"per_hour": 50}, {"rate": "20/h"}, "per_hour 50 → 20"),
        ({"rate": "50/h"}, {"per_hour": 20}, "per_hour 50 → 20"),
        ({"per_hour": 50, "rate": "5/10s"}, {"rate": "2/3s"}, "rate 5/10s → 2/3s"),
        ({"per_hour": 50}, {"per_hour": None}, "per_hour 50 → none"),
        ({"per_hour": 50}, {"per_hour": 50}, ""),
        ({}, {"min_delay": "2s", "strategy": "weighted"}, "min_delay 0 → 2s, strategy least_recently_used → weighted"),
        ({"cooldown": "10m", "cooldown_cap": "20m"}, {"cooldown": "1h"}, "cooldown 10m → 1h, cooldown_cap 20m → 1h"),
        ({"cooldown": "10m"}, {"cooldown_cap": "5m"}, "cooldown 10m → 5m, cooldown_cap 6h → 5m"),
        ({"concurrency": None}, {"concurrency": 2}, "concurrency none → 2"),
    ],
)
def test_a_key_is_set_above_what_is_declared(declared: dict[str, Any], values: dict[str, Any], changes: str) -> None:
    before = rules(**declared)
    assert changes_text(differences(before, with_keys(before, checked_keys(values)))) == changes


def test_an_operator_s_limits_add_up_until_they_are_reset() -> None:
    first = limited(None, {"per_hour": 20}, "ann@h", 1, reset=False)
    second = limited(first, {"rate": "2/min"}, "bob@h", 2, reset=False)
    assert second == OperatorLimits(values={"per_hour": 20, "per_minute": 2}, by="bob@h", at=2)
    assert effective(Declaration(rules=rules(per_hour=50, min_delay=1)), second) == rules(
        per_hour=20, per_minute=2, min_delay=1
    )
    assert effective(None, limited(second, {"min_delay": SECOND}, None, 3, reset=True)) == rules(min_delay=1)
    assert limited(second, {}, "ann@h", 3, reset=True) is None
