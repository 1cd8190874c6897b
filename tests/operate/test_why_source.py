"""Why a message waits to be published."""

import msgspec

from pitboss.model.alert_message import ChannelSpec, alert_handler
from pitboss.model.duration import SECOND
from pitboss.model.outcome import Retry
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import DeliveryFigures, Snapshot
from pitboss.model.source import SourceFigures, SourceSpec, SourceState
from pitboss.model.source_findings import KIND
from pitboss.model.task import TaskError
from pitboss.model.waiting import Why
from pitboss.operate.why import explain
from pitboss.testing.conformance import Bench, Subject
from tests.operate.test_why import assert_faces_agree

SPEC = SourceSpec(name="one", url="amqp://h", queue="in", handler="work", dead_letter_queue="in_dlq")


async def waiting(bench: Bench) -> str:
    await bench.store.register([SPEC.outbox_info("app.py")])
    return (await bench.add(handler=SPEC.outbox, queue=SPEC.outbox, params='{"routing_key":"q"}')).id


async def living(
    bench: Bench, state: SourceState, why: str = "", name: str = "one", host: str = "box", some: bool = False
) -> None:
    session = await bench.store.open_session(SessionInfo(host=host, kind=KIND, ttl=60 * SECOND))
    told = SourceFigures(name=name, queue="in", handler="work", out_state=state, out_why=why, out_some=some)
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

    async def test_a_process_that_its_manager_starts_again_needs_no_other_manager(self, bench: Bench) -> None:
        """Regression: each time the source process was replaced, the manager that did so advised to start one."""
        task = await waiting(bench)
        manager = await bench.store.open_session(SessionInfo(host="box", ttl=60 * SECOND))
        snapshot = Snapshot(delivery=DeliveryFigures(names=("one",), state="starting"))
        await bench.store.renew(manager.number, msgspec.json.encode(snapshot).decode())
        found = await why(bench, task)
        assert (found.cause, found.stuck, found.helps) == ("source", False, ())
        assert "the delivery process on box starts" in found.sentence

    async def test_a_message_waits_for_its_own_trouble_and_not_for_that_of_another(self, bench: Bench) -> None:
        """Regression: a message to a missing exchange was said to wait for the queue of another message."""
        await bench.store.register([SPEC.outbox_info("app.py")])
        outbox = {"handler": SPEC.outbox, "queue": SPEC.outbox, "params": '{"routing_key":"q"}'}
        claim = await bench.started(**outbox, max_attempts=9)
        await bench.report(claim, Retry(error=TaskError(category="missing", message="there is no exchange x")))
        await living(bench, SourceState.UNROUTABLE, "there is no queue y", some=True)
        found = await why(bench, claim.id)
        assert [gate.says for gate in found.gates if gate.name == "source"] == ["there is no exchange x"]
        assert found.sentence.startswith("attempt 1 failed (there is no exchange x), and the next one is due in")

    async def test_a_message_that_was_not_tried_yet_has_no_trouble(self, bench: Bench) -> None:
        task = await waiting(bench)
        await living(bench, SourceState.UNROUTABLE, "there is no queue y", some=True)
        assert (await why(bench, task)).sentence.startswith("it is a message that is published next")

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
