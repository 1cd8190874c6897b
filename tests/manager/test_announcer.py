"""What a manager says of the rules of resource pools: what its declaration changes, and what an operator has set."""

from typing import Any

from pitboss.manager.announcer import Announcer
from pitboss.model.resource import Declaration, Limits, OperatorLimits, PoolRules, ResourcePool
from pitboss.testing.clock import FakeClock


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **facts: Any) -> None:
        self.kept.append((event, facts))

    warning = error = info


def test_a_declaration_that_changes_rules_is_told_and_logged_with_who_made_the_other() -> None:
    said: list[str] = []
    announcer, log = Announcer(said.append, FakeClock()), Lines()
    announcer.log = log
    rules = PoolRules(limits=Limits(concurrency=3))
    announcer.declared("proxies", rules, None)
    announcer.declared("proxies", rules, Declaration(rules=rules, by="manager h:1"))
    assert said == []
    announcer.declared("proxies", rules, Declaration(by="manager h:1"))
    assert "proxies: what this app declares changes its rules: concurrency 1 → 3" in said[0]
    assert "manager h:1" in said[0]
    changes = {"pool": "proxies", "changes": "concurrency 1 → 3", "declared_before_by": "manager h:1"}
    assert log.kept == [("pool rules changed", changes)]


def test_limits_that_an_operator_set_are_told_with_how_to_end_them() -> None:
    said: list[str] = []
    limited = OperatorLimits(values={"per_hour": 20}, by="ann@h")
    Announcer(said.append, FakeClock()).limited([ResourcePool(name="a"), ResourcePool(name="b", limited=limited)])
    (line,) = said
    assert "per_hour=20 (by ann@h)" in line
    assert "pitboss resources limit b --reset" in line
