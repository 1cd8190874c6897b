"""The pauses between tries to reach a broker."""

import asyncio
from collections.abc import Callable

import pytest

from pitboss.engines.amqp import AmqpBroker
from pitboss.engines.amqp.consuming import AmqpConsuming
from pitboss.engines.broker_protocol import Broker, BrokerError
from pitboss.model.source import SourceState
from pitboss.sources import connecting
from pitboss.sources.connecting import TRIES, Tries
from tests.sources.stage import Stage, until


class Pauses:
    """A sleep that takes no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        monkeypatch.setattr("pitboss.sources.connecting.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)


async def test_pauses_of_1_2_and_4_seconds_and_then_always_4(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = Pauses(monkeypatch)
    tries = Tries(lambda: 1.0, lambda _: None)
    for _ in range(6):
        await tries.pause("away")
    assert pauses.seconds == [1, 2, 4, 4, 4, 4]
    tries.succeeded()
    await tries.pause("away")
    assert pauses.seconds[-1] == 1


@pytest.mark.parametrize("luck", [0.0, 0.3, 0.999])
async def test_pauses_are_spread_and_never_longer(monkeypatch: pytest.MonkeyPatch, luck: float) -> None:
    pauses = Pauses(monkeypatch)
    tries = Tries(lambda: luck, lambda _: None)
    for _ in range(4):
        await tries.pause("away")
    for base, seconds in zip((1, 2, 4, 4), pauses.seconds, strict=True):
        assert seconds == pytest.approx(base * (0.75 + 0.25 * luck))
        assert base * 0.75 <= seconds <= base


async def test_after_ten_tries_in_a_row_it_is_worn_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Pauses(monkeypatch)
    told: list[str] = []
    tries = Tries(lambda: 0.0, told.append)
    for _ in range(TRIES - 1):
        await tries.pause("no answer")
    assert told == []
    tries.succeeded()
    for _ in range(TRIES - 1):
        await tries.pause("no answer")
    assert told == []
    for _ in range(5):
        await tries.pause("no answer")
    # The process decides when it counts, and tells it once.
    assert told == ["10 tries to reach the broker have failed: no answer"] * 5


class NoBroker:
    """A broker that is out of reach."""

    async def consuming(self, lost: object) -> None:
        raise BrokerError(SourceState.AWAY, "no answer")

    async def publishing(self, lost: object, blocked: object) -> None:
        raise BrokerError(SourceState.AWAY, "no answer")


async def test_a_process_that_is_worn_out_tells_its_manager_and_goes_on(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_broker(_: str) -> Broker:
        return NoBroker()  # type: ignore[return-value]

    monkeypatch.setattr(connecting, "_PAUSES", (0.001,))
    running = await sqlite_stage.start(make_broker=no_broker, running=False)
    await until(lambda: running.worn_out)
    # Once, though the source and its outbox try on their own; and it goes on until it is replaced.
    await asyncio.sleep(0)
    assert set(running.worn_out) == {"10 tries to reach the broker have failed: no answer"}
    assert len(running.worn_out) == 1
    assert running.state() is SourceState.AWAY


async def test_one_source_that_cannot_connect_interrupts_no_other(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the process of all sources was replaced every 25 s, because of one wrong password."""
    stage = sqlite_stage
    monkeypatch.setattr(connecting, "_PAUSES", (0.001,))
    tried = 0

    def counted(url: str) -> Broker:
        nonlocal tried
        broker = AmqpBroker(url)
        connect = broker.consuming

        async def consuming(lost: Callable[[BrokerError], None]) -> AmqpConsuming:
            nonlocal tried
            tried += "unknown" in url
            return await connect(lost)

        broker.consuming = consuming  # type: ignore[method-assign]
        return broker

    bad = stage.spec(name="bad", url=stage.rabbit.url(stage.vhost, "unknown"))
    running = await stage.start(bad, stage.spec(), make_broker=counted, running=False)
    await running.until(SourceState.RUNNING)
    await running.until(SourceState.REFUSED, "bad")
    # Some failed before the other one was connected.
    begun = tried
    await until(lambda: tried >= begun + 2 * TRIES, within=60)
    assert running.worn_out == []
    await stage.send_numbers(3)
    await stage.taken_in()
    await until(lambda: any("source bad takes no messages (refused)" in line for line in running.lines))
    assert len([line for line in running.lines if "source bad takes no messages" in line]) == 1
