"""The keys of a resource pool as people write them."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from pitboss.model.duration import SECOND
from pitboss.model.errors import InvalidInput
from pitboss.model.limits import Window
from pitboss.model.resource import HOUR, MINUTE, PoolRules, Strategy
from pitboss.model.resource_keys import (
    KEYS,
    LIMIT_KEYS,
    DeclaredResources,
    LimitKeys,
    ResourceKeys,
    checked,
    checked_keys,
    declared_resources,
    limits_of,
    rules_of,
)


def test_every_window_of_every_form_counts() -> None:
    said = checked_keys({"per_hour": 50, "per_minute": 6, "rate": "1/2s, 50/h", "min_delay": "2s", "jitter": 1})
    limits = limits_of(said)
    assert limits.windows == (Window(1, 2 * SECOND), Window(6, MINUTE), Window(50, HOUR))
    assert (limits.min_delay, limits.jitter, limits.concurrency) == (2 * SECOND, SECOND, 1)


def test_what_is_not_said_is_the_default() -> None:
    assert rules_of({}) == PoolRules()
    assert declared_resources("keys", {}, ()).rules == PoolRules()


def test_text_of_the_environment_means_the_same() -> None:
    said = checked_keys({"per_hour": "50", "min_delay": "2", "max_ejected": "0.25", "concurrency": "none"})
    rules = rules_of(said)
    assert rules.limits.windows == (Window(50, HOUR),)
    assert (rules.limits.min_delay, rules.max_ejected, rules.limits.concurrency) == (2 * SECOND, 0.25, None)


def test_an_operator_can_lift_a_limit() -> None:
    said = checked_keys({"per_hour": 50, "rate": "1/s"}) | checked_keys({"per_hour": "none", "rate": "none"})
    assert limits_of(said).windows == ()


def test_a_cap_that_is_not_set_is_not_below_its_time() -> None:
    rules = rules_of(checked_keys({"cooldown": "8h", "blacklist": timedelta(days=2)}))
    assert rules.cooldown_cap == 8 * HOUR
    assert rules.blacklist_cap == 48 * HOUR


def test_what_code_says_survives_its_way_as_data() -> None:
    pool = declared_resources("proxies", {"per_hour": 50, "strategy": "sticky", "cooldown": "5m", "rate": "2/s"}, ())
    again = msgspec.json.decode(msgspec.json.encode(pool), type=DeclaredResources)
    assert again.rules == pool.rules
    assert again.rules.strategy is Strategy.STICKY


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("per_hour", 0, "whole number"),
        ("per_hour", True, "whole number"),
        ("per_hour", "many", "whole number"),
        ("rate", 5, "not a rate"),
        ("rate", "fast", "not a rate"),
        ("min_delay", "soon", "not a duration"),
        ("delay_from", "middle", "one of start, end"),
        ("strategy", "best", "one of least_recently_used"),
        ("away", "run", "one of wait, rebind"),
        ("max_ejected", 2, "not a share"),
        ("max_failures", 0, "whole number"),
        ("per_houre", 5, 'write "per_hour"'),
        ("proxies", 5, "remove it"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(key: str, value: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        checked(key, value)


def test_a_member_has_only_limits() -> None:
    assert checked("per_hour", 5, whose="a member") == 5
    with pytest.raises(InvalidInput, match='a member has no key "strategy"'):
        checked("strategy", "sticky", whose="a member")


def test_two_pools_have_two_names() -> None:
    with pytest.raises(InvalidInput, match="two resource pools"):
        declared_resources("my-keys", {}, ["My_Keys"])


def test_types_and_readers_know_the_same_keys() -> None:
    assert set(ResourceKeys.__annotations__) == set(KEYS)
    assert set(LimitKeys.__annotations__) == set(LIMIT_KEYS)
