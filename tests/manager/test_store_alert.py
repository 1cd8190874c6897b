"""What a manager tells when it does not reach its store: past the store, and not too often."""

from pitboss.manager.store_alert import StoreAlert
from pitboss.model.alert_message import AlertMessage, ChannelSpec, Kind
from pitboss.model.alert_rules import AlertsSpec, rules_of
from pitboss.testing.clock import FakeClock

OPS = ChannelSpec(name="ops", type="webhook", url="https://example.org")
LOG = ChannelSpec(name="log", type="log")


class World:
    def __init__(self, spec: AlertsSpec | None) -> None:
        self.clock, self.sent = FakeClock(), list[tuple[tuple[str, ...], AlertMessage]]()
        self.alert = StoreAlert(lambda: spec, lambda names, message: self.sent.append((names, message)), self.clock)

    def outage(self, seconds: int) -> None:
        for second in range(seconds):
            self.clock.advance(1)
            self.alert.away(second + 1, "no route")
        self.alert.back(seconds)


def test_a_long_outage_is_told_once_with_its_end() -> None:
    world = World(AlertsSpec(rules=rules_of({}), channels=(OPS, LOG)))
    world.outage(100)
    assert [(names, one.kind) for names, one in world.sent] == [(("ops",), Kind.STORE)] * 2
    began, ended = (one for _, one in world.sent)
    assert "has not answered for 31s: no route" in began.text
    assert began.title == "Pitboss: the store does not answer"
    assert "did not answer for 1m40s" in ended.text
    assert ended.title == "Pitboss: the store is back"


def test_a_short_one_and_one_without_a_channel_are_not_told() -> None:
    world = World(AlertsSpec(rules=rules_of({}), channels=(OPS,)))
    world.outage(30)
    assert world.sent == []
    off = AlertsSpec(rules=rules_of({"store_away": None}), channels=(OPS,))
    for spec in (None, AlertsSpec(rules=rules_of({})), off):
        world = World(spec)
        world.outage(60)
        assert world.sent == []


def test_outages_that_follow_each_other_are_told_once_in_a_digest_period() -> None:
    world = World(AlertsSpec(rules=rules_of({}), channels=(OPS,)))
    for _ in range(20):
        world.outage(60)
    assert len(world.sent) == 2 * 2
