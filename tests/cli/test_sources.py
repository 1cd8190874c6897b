"""`pitboss sources`, and `pitboss dead retry --source NAME` with a real RabbitMQ."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pika
import pytest

from pitboss.cli.errors import Exit
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND
from pitboss.model.filter import EVERYTHING
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import SessionInfo
from pitboss.model.snapshot import DeliveryFigures
from pitboss.model.source import SourceFigures, SourceSpec, SourceState, message_key
from pitboss.model.source_findings import KIND
from pitboss.model.states import State
from pitboss.model.task import Task, Unique
from tests.cli.command_line import GREET, new, pitboss, put, run_all, with_store
from tests.cli.fake_managers import manager, snapshot, worker
from tests.servers.rabbitmq import RabbitServer

DLQ = "in_dlq"
GREETED = b'{"name": "ann"}'


def told(*figures: SourceFigures) -> None:
    """A delivery process that says this."""

    async def work(store: Store) -> None:
        session = await store.open_session(SessionInfo(host="box1", pid=5, kind=KIND))
        await store.renew(session.number, msgspec.json.encode(figures).decode())

    with_store(work)


def figures(**options: Any) -> SourceFigures:
    usual = {"name": "one", "queue": "in", "handler": "greet", "state": SourceState.RUNNING}
    return SourceFigures(**{**usual, "out_state": SourceState.RUNNING, **options})


def test_without_sources_it_says_how_to_have_one() -> None:
    put()
    answer = pitboss("sources")
    assert answer.code == 0
    assert "write [sources.NAME] into pitboss.toml" in answer.err + answer.out
    assert pitboss("sources", "--json").json()["sources"] == []


def test_sources_are_listed_with_what_waits() -> None:
    spec = SourceSpec(name="one", url="amqp://h", queue="in", handler="greet", dead_letter_queue=DLQ)
    message = new(spec.outbox, '{"routing_key":"q"}', queue=spec.outbox)
    put(message, handlers=(GREET, spec.outbox_info("app.py")))
    told(
        figures(ready=7000, received=1200, stored=1100, duplicates=99, malformed=1, published=3),
        figures(name="two", state=SourceState.AWAY, why="no answer", out_state=SourceState.AWAY, out_why="so"),
    )
    answer = pitboss("sources", env={"COLUMNS": "200"})
    first, second = (line.split() for line in answer.out.splitlines()[1:3])
    assert first[:4] == ["one", "in", "greet", "running"]
    assert first[-9:] == ["7,000", "1,200", "1,100", "99", "1", "running", "1", "3", "box1"]
    assert second[3] == "away"
    assert "two: no answer" in answer.err + answer.out
    document = pitboss("sources", "--json").json()["sources"]
    assert [(one["name"], one["state"], one["outbox_waiting"], one["host"]) for one in document] == [
        ("one", "running", 1, "box1"),
        ("two", "away", 0, "box1"),
    ]


def test_what_rarely_happens_is_told_in_sentences() -> None:
    put()
    told(figures(requeued=3, known_failed=1, retried=2, malformed=1, malformed_why="no JSON"))
    answer = pitboss("sources", env={"COLUMNS": "200"})
    assert "one: 3 messages were given back to RabbitMQ" in answer.err
    assert "one: 1 message had the id of a task that has failed" in answer.err
    assert "one: 2 failed tasks set to run again" in answer.err
    assert "one: the last malformed message: no JSON" in answer.err


def test_the_delivery_process_is_listed_with_managers_and_workers() -> None:
    """Regression: only HTTP servers were."""
    put()
    manager(snapshot(worker(), delivery=DeliveryFigures(names=("one", "two"), state="running", pid=77)))
    shown = pitboss("ps", env={"COLUMNS": "200"}).out.partition("Delivery processes")[2]
    assert shown.splitlines()[-1].split() == ["box1", "one,", "two", "running", "77", "0"]
    document = pitboss("ps", "--json").json()["managers"][0]["sources"]
    assert (document["names"], document["pid"]) == (["one", "two"], 77)


def test_status_and_doctor_name_the_trouble() -> None:
    put()
    manager(snapshot(worker()))
    told(figures(state=SourceState.MISSING, why='no queue "in"'))
    for command in (("status",), ("doctor",)):
        answer = pitboss(*command, env={"COLUMNS": "200"})
        assert 'ource "one" takes no messages (missing): no queue "in"' in answer.out + answer.err, command


class Broker:
    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._channel.queue_declare(DLQ, durable=True)
        self._channel.confirm_delivery()

    def send(self, *bodies: bytes, **properties: Any) -> None:
        for body in bodies:
            self._channel.basic_publish("", DLQ, body, pika.BasicProperties(**properties))

    def waiting(self) -> int:
        return int(self._channel.queue_declare(DLQ, passive=True).method.message_count)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def broker(folder: Path, rabbit_server: RabbitServer, rabbit_vhost: str) -> Iterator[Broker]:
    broker = Broker(rabbit_server.url(rabbit_vhost))
    table = f'[sources.one]\nurl = "{broker.url}"\nqueue = "in"\nhandler = "greet"\n'
    (folder / "pitboss.toml").write_text(table)
    put()
    yield broker
    broker.close()


def tasks() -> list[Task]:
    async def find(store: Store) -> list[Task]:
        return list((await store.find(EVERYTHING, oldest_first=True)).tasks)

    return with_store(find)


def test_messages_are_taken_back(broker: Broker) -> None:
    broker.send(GREETED, GREETED)
    answer = pitboss("dead", "retry", "--source", "one", "--yes")
    assert (answer.code, answer.out) == (0, "2 new tasks of messages without a task\n")
    assert [task.state for task in tasks()] == [State.PENDING, State.PENDING]
    assert broker.waiting() == 0


def test_what_would_be_taken_back_is_only_counted(broker: Broker) -> None:
    broker.send(GREETED)
    answer = pitboss("dead", "retry", "--source", "one", "--dry-run")
    assert answer.code == 0
    assert "would take back 1 message; nothing was changed" in answer.err + answer.out
    assert (broker.waiting(), tasks()) == (1, [])


def test_it_asks_first(broker: Broker) -> None:
    broker.send(GREETED)
    answer = pitboss("dead", "retry", "--source", "one")
    assert answer.code != 0
    assert "--yes" in answer.err
    assert (broker.waiting(), tasks()) == (1, [])


def test_an_empty_queue_says_so(broker: Broker) -> None:
    answer = pitboss("dead", "retry", "--source", "one", "--yes")
    assert answer.code == Exit.NOT_FOUND
    assert "in_dlq is empty" in answer.err + answer.out


def test_what_stays_makes_the_command_fail_with_the_reason(broker: Broker) -> None:
    broker.send(b"nonsense", GREETED)
    answer = pitboss("dead", "retry", "--source", "one", "--yes")
    assert answer.code == Exit.FAILED
    assert answer.out == "1 new task of messages without a task; 1 message left in in_dlq\n"
    assert "left: the message is not JSON" in answer.err
    assert (broker.waiting(), len(tasks())) == (1, 1)


def test_of_many_that_stay_the_others_are_counted(broker: Broker) -> None:
    broker.send(*[b"nonsense"] * 7)
    answer = pitboss("dead", "retry", "--source", "one", "--yes")
    assert answer.err.count("left: the message is not JSON") == 5
    assert "left: 2 more" in answer.err


def test_an_unknown_source_is_named_with_those_that_there_are(broker: Broker) -> None:
    answer = pitboss("dead", "retry", "--source", "two", "--yes")
    assert answer.code == Exit.NOT_FOUND
    assert 'there is no source "two"' in answer.err
    assert "the settings have one" in answer.err


def test_a_handler_that_is_not_registered_is_named(broker: Broker) -> None:
    broker.send(GREETED)

    async def forget(store: Store) -> None:
        await store.forget(["greet"])
        await store.register([HandlerInfo(name="other")])

    with_store(forget)
    answer = pitboss("dead", "retry", "--source", "one", "--yes")
    assert answer.code == Exit.NOT_FOUND
    assert 'no app has registered the handler "greet"' in answer.err
    assert broker.waiting() == 1


def test_a_broker_that_is_away_is_named(folder: Path) -> None:
    put()
    table = '[sources.one]\nurl = "amqp://ann:hunter2@127.0.0.1:1/"\nqueue = "in"\nhandler = "greet"\n'
    (folder / "pitboss.toml").write_text(table)
    answer = pitboss("dead", "retry", "--source", "one", "--yes")
    assert answer.code != 0
    assert "RabbitMQ at 127.0.0.1:1" in answer.err
    assert "hunter2" not in answer.err


def test_a_missing_dead_letter_queue_is_named(folder: Path, broker: Broker) -> None:
    table = f'[sources.one]\nurl = "{broker.url}"\nqueue = "other"\nhandler = "greet"\n'
    (folder / "pitboss.toml").write_text(table)
    answer = pitboss("dead", "retry", "--source", "one", "--yes")
    assert answer.code != 0
    assert "other_dlq" in answer.err


def test_what_a_remembered_message_id_keeps_from_being_deleted_is_said() -> None:
    """Regression: "0 tasks deleted" without a reason, and --dry-run said that they would be."""
    spec = SourceSpec(
        name="one", url="amqp://h", queue="in", handler="greet", dead_letter_queue=DLQ, dedupe=7200 * SECOND
    )
    known = [new(unique=Unique(message_key("one", f"m{number}"), spec.dedupe)) for number in range(2)]
    put(*known, new(), handlers=(GREET, spec.outbox_info("app.py")))
    run_all(fail="no")
    dry = pitboss("dead", "discard", "--all", "--dry-run")
    assert dry.code == 0
    assert "would delete 1 task; nothing was changed" in dry.err
    assert "2 tasks stay: their message ids are remembered until 20" in dry.err
    answer = pitboss("dead", "discard", "--all", "--yes")
    assert answer.code == Exit.REFUSED
    assert "1 task deleted" in answer.err
    assert "2 tasks stay: their message ids are remembered until 20" in answer.err
    assert "pitboss dead retry" in answer.err
    assert len([task for task in tasks() if task.handler == "greet"]) == 2


def test_a_task_without_a_message_is_deleted_without_a_word_about_ids() -> None:
    put(new(unique=Unique("k")))
    run_all(fail="no")
    answer = pitboss("dead", "discard", "--all", "--yes")
    assert (answer.code, "stay" in answer.err) == (0, False)


def test_the_check_of_the_status_fails_while_a_source_takes_nothing() -> None:
    """Regression: it exited with 0."""
    put()
    manager(snapshot(worker()))
    told(figures(state=SourceState.REFUSED, why="the password is wrong"), figures(name="two"))
    answer = pitboss("status", "--check", env={"COLUMNS": "200"})
    assert answer.code == Exit.UNHEALTHY
    assert 'Source "one" takes no messages (refused): the password is wrong.' in answer.out
