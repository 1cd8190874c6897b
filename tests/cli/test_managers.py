"""`pitboss stop` and `pitboss drain`."""

import time

import pytest

from pitboss.cli.errors import Exit
from pitboss.cli.screen import Screen
from pitboss.model.desired_state import DesiredState, manager_key
from pitboss.model.snapshot import Snapshot
from pitboss.operate import desired_state
from tests.cli.command_line import new, pitboss, put, with_store
from tests.cli.fake_managers import busy, following, manager, snapshot, wish, wishes, worker


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desired_state, "_LOOK_SECONDS", 0.01)


def test_the_only_manager_is_stopped_without_a_question() -> None:
    number = manager(snapshot(busy(tasks=2)))
    answer = pitboss("stop")
    assert answer.code == 0
    assert answer.err.strip() == "asked box1 (manager 1) to stop; it runs 2 × fetch"
    assert wishes() == {f"manager/{number}": {"stop": True}}
    pitboss("stop", "--now")
    assert wishes() == {f"manager/{number}": {"stop": True, "now": True}}


def test_several_are_asked_about() -> None:
    manager(snapshot(worker()))
    manager(snapshot(worker()), host="box2", pid=2)
    for command in (["stop"], ["drain"]):
        answer = pitboss(*command)
        assert answer.code == Exit.REFUSED
        assert "box2 (manager 2), 1 worker, 0 running" in answer.err
        assert "--host or --manager" in answer.err
    assert wishes() == {}
    assert pitboss("stop", "--yes").code == 0
    assert set(wishes()) == {"manager/1", "manager/2"}


@pytest.mark.parametrize("yes", [True, False])
def test_a_person_can_say_yes_or_no(monkeypatch: pytest.MonkeyPatch, *, yes: bool) -> None:
    manager(snapshot(worker()))
    manager(snapshot(worker()), host="box2", pid=2)
    monkeypatch.setattr(Screen, "interactive", True)
    answer = pitboss("stop", stdin="y\n" if yes else "n\n")
    assert answer.code == (0 if yes else Exit.REFUSED)
    assert len(wishes()) == (2 if yes else 0)


def test_one_host_or_one_manager_can_be_chosen() -> None:
    manager(snapshot(worker()))
    manager(snapshot(worker()), host="box2", pid=2)
    manager(snapshot(worker()), host="box2", pid=3)
    assert pitboss("drain", "--host", "box2").code == 0
    assert set(wishes()) == {"manager/2", "manager/3"}
    assert pitboss("stop", "--manager", "1").code == 0
    assert wishes()["manager/1"] == {"stop": True}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--host", "bxo1"], Exit.NOT_FOUND, "did you mean box1?"),
        (["--manager", "77"], Exit.NOT_FOUND, "running are 1 (box1)"),
        (["--manager", "x"], Exit.USAGE, "--manager"),
        (["--manager", "1", "--host", "box1"], Exit.USAGE, "cannot be given together"),
        (["--timeout", "soon"], Exit.USAGE, "is not a duration"),
    ],
)
def test_who_cannot_be_stopped(words: list[str], code: int, said: str) -> None:
    manager(snapshot(worker()))
    for command in ("stop", "drain"):
        answer = pitboss(command, *words)
        assert answer.code == code
        assert said in answer.err
    assert wishes() == {}


def test_no_manager_runs() -> None:
    put(new())
    answer = pitboss("stop")
    assert answer.code == Exit.NOT_FOUND
    assert "no manager is running" in answer.err


def test_stop_waits_until_the_process_has_no_session() -> None:
    number = manager(snapshot(busy()))

    asked: list[float] = []

    def react(known: DesiredState) -> Snapshot | None:
        """Ends its task for a second before it stops, so that there is something to wait for."""
        if not known.manager(number).stop:
            return snapshot(busy())
        asked.append(time.monotonic())
        return None if asked[-1] - asked[0] > 1 else snapshot(busy())

    with following(number, react):
        answer = pitboss("stop", "--wait", "--timeout", "30s")
    assert answer.code == 0
    assert "stopping: 0 of 1; waiting for box1 (manager 1): 1 × fetch" in answer.err
    assert answer.err.splitlines()[-1] == "stopping: done (1 manager)"


def test_a_manager_that_only_changed_its_session_has_not_stopped() -> None:
    number = manager(snapshot(busy()))
    manager(snapshot(busy()))
    with_store(lambda store: store.end_session(number))
    answer = pitboss("stop", "--wait", "--timeout", "50ms")
    assert answer.code == Exit.TIMEOUT
    assert "still waiting for box1 (manager 2): 1 × fetch" in answer.err


def test_drain_waits_until_nothing_runs_and_can_be_undone() -> None:
    number = manager(snapshot(busy()))

    def react(known: DesiredState) -> Snapshot | None:
        return snapshot(worker(), draining=known.manager(number).drain)

    with following(number, react):
        assert pitboss("drain", "--wait", "--timeout", "30s").code == 0
        assert pitboss("ps").out.splitlines()[1].split()[2] == "draining"
        answer = pitboss("drain", "--undo", "--wait", "--timeout", "30s")
    assert answer.code == 0
    assert "to take tasks again" in answer.err
    assert wishes() == {}


def test_a_drain_that_takes_too_long_ends_with_124() -> None:
    manager(snapshot(busy(tasks=2), draining=True))
    answer = pitboss("drain", "--wait", "--timeout", "50ms")
    assert answer.code == Exit.TIMEOUT
    assert "2 × fetch" in answer.err


def test_undoing_reaches_what_was_asked_of_an_earlier_session_of_the_same_manager() -> None:
    first = manager(snapshot(worker()))
    pitboss("drain")
    other = manager(snapshot(worker()), host="box2", pid=2)
    pitboss("drain", "--host", "box2")
    with_store(lambda store: store.end_session(first))
    second = manager(snapshot(worker(), draining=True))
    assert second > other
    assert pitboss("drain", "--undo", "--host", "box1").code == 0
    assert wishes() == {f"manager/{other}": {"drain": True}}


def test_a_stop_cannot_be_taken_back() -> None:
    manager(snapshot(worker()))
    pitboss("stop")
    for words in (["drain"], ["drain", "--undo"]):
        answer = pitboss(*words)
        assert answer.code == Exit.REFUSED
        assert "asked to stop already" in answer.err


def test_fields_of_other_releases_stay() -> None:
    number = manager(snapshot(worker()))
    wish(f"manager/{number}", colour="blue")
    pitboss("drain")
    assert wishes()[f"manager/{number}"] == {"colour": "blue", "drain": True}
    pitboss("drain", "--undo")
    assert wishes()[f"manager/{number}"] == {"colour": "blue"}


def test_managers_can_read_what_is_written() -> None:
    number = manager(snapshot(worker()))
    pitboss("stop", "--now")
    known = DesiredState()
    known.take(with_store(lambda store: store.wishes()))
    assert known.manager(number).stop
    assert known.manager(number).now
    assert manager_key(number) in wishes()
