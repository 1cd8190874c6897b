"""Why a message waits to be published."""

import msgspec

from pitboss.model.alert_message import ChannelSpec, alert_handler
from pitboss.model.duration import SECOND
from pitboss.model.session import SessionInfo
from pitboss.model.source import SourceFigures, SourceSpec, SourceState
from pitboss.model.source_findings import KIND
from pitboss.model.waiting import Why
from pitboss.operate.why import explain
from pitboss.testing.conformance import Bench, Subject
from tests.operate.test_why import assert_faces_agree

SPEC = SourceSpec(name="one", url="amqp://h", queue="in", handler="work", dead_letter_queue="in_dlq")


async def waiting(bench: Bench) -> str:
    await bench.store.register([SPEC.outbox_info("app.py")])
    return (await bench.add(handler=SPEC.outbox, queue=SPEC.outbox, params='{"routing_key":"q"}')).id


async def living(bench: Bench, state: SourceState, why: str = "", name: str = "one", host: str = "box") -> None:
    session = await bench.store.open_session(SessionInfo(host=host, kind=KIND, ttl=60 * SECOND))
    told = SourceFigures(name=name, queue="in", handler="work", out_state=state, out_why=why)
    await bench.store.renew(session.number, msgspec.json.encode((told,)).decode())


async def why(bench: Bench, task: str) -> Why:
    found = (await explain(bench.store, task, bench.now)).why
    await assert_faces_agree(bench, task, found)
    return found


class TestOutboxTasks(Subject):
    async def test_without_a_delivery_process_nothing_publishes_it(self, bench: Bench) -> None:
        task = await waiting(bench)
        found = await why(bench, task)
        assert (found.cause, found.stuck) == ("no-source", True)
        assert found.sentence == "it is a message that waits to be published: no manager runs the source one"
        assert "pitboss up" in found.helps

    async def test_a_process_of_other_sources_does_not_count(self, bench: Bench) -> None:
        task = await waiting(bench)
        await living(bench, SourceState.RUNNING, name="two")
        assert (await why(bench, task)).cause == "no-source"

    async def test_a_broker_that_is_away_is_the_cause(self, bench: Bench) -> None:
        task = await waiting(bench)
        await living(bench, SourceState.AWAY, "RabbitMQ at h cannot be reached")
        found = await why(bench, task)
        assert (found.cause, found.stuck) == ("source", False)
        assert found.sentence == "it is a message that waits to be published: RabbitMQ at h cannot be reached"

    async def test_one_process_that_can_publish_is_enough(self, bench: Bench) -> None:
        task = await waiting(bench)
        await living(bench, SourceState.AWAY, "gone")
        await living(bench, SourceState.RUNNING, host="other")
        found = await why(bench, task)
        assert found.sentence.startswith("it is a message that is published next")
        assert not found.stuck


class TestAlertTasks(Subject):
    async def test_a_message_of_alerts_waits_for_a_process_with_its_channel(self, bench: Bench) -> None:
        channel = ChannelSpec(name="ops", type="webhook", url="https://example.org")
        await bench.store.register([channel.info("app.py")])
        name = alert_handler("ops")
        task = (await bench.add(handler=name, queue=name)).id
        found = await why(bench, task)
        assert (found.cause, found.stuck) == ("no-channel", True)
        await bench.store.open_session(SessionInfo(host="box", kind=KIND, handlers=(name,), ttl=60 * SECOND))
        found = await why(bench, task)
        assert found.sentence.startswith("it is a message that is published next")
        assert not found.stuck
