"""`pitboss pools`: changes, what stays of earlier ones, and waiting for managers to follow."""

import pytest

from pitboss.cli.command import operator
from pitboss.cli.errors import Exit
from pitboss.model.desired_state import DesiredState
from pitboss.model.snapshot import Snapshot, WorkerState
from pitboss.operate import desired_state
from tests.cli.command_line import new, pitboss, put, with_store
from tests.cli.fake_managers import busy, crashed, following, manager, pool, snapshot, wish, wishes, worker


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desired_state, "_LOOK_SECONDS", 0.01)


def test_pools_list_shows_each_pool_of_each_manager() -> None:
    mail = pool("mail", 1, least=0, most=4, queues=("mail", "news"), why="3 tasks wait")
    manager(snapshot(busy(), worker("download-2"), worker("mail-1"), pools=(pool(), mail)))
    manager(snapshot(worker(), pools=(pool(wanted=3, paused=True),)), host="box2", pid=200)
    wish("pool/download@box2", size=3, paused=True)
    wish("pool/gone", size=1)
    answer = pitboss("pools", "list")
    lines = [line.split() for line in answer.out.splitlines()]
    assert lines[1][:8] == ["download", "box1", "running", "2/2", "2", "16", "1", "0"]
    assert lines[2][:4] == ["download", "box2", "paused", "1/3"]
    assert "3 workers, paused" in answer.out.splitlines()[2]
    assert lines[3][:6] == ["mail", "box1", "running", "1/1", "0–4", "16"]
    assert "mail, news" in answer.out
    assert "3 tasks wait" in answer.out
    assert 'pool "gone", which no manager runs' in answer.err
    document = pitboss("pools", "list", "--json").json()
    assert document["pools"][0]["workers"] == {"processing": 1, "idle": 1}
    assert document["orders"]["download@box2"] == {"size": 3, "paused": True}
    assert [one["host"] for one in pitboss("pools", "list", "--host", "box2", "--json").json()["pools"]] == ["box2"]


def test_the_state_of_a_pool_is_the_worst_of_it() -> None:
    manager(snapshot(worker(), crashed("download-2")))
    manager(snapshot(worker(), pools=(pool(wanted=2),)), host="box2", pid=2)
    manager(snapshot(worker(), draining=True), host="box3", pid=3)
    manager(snapshot(crashed("download-1"), crashed("download-2")), host="box4", pid=4)
    states = [line.split()[2] for line in pitboss("pools", "list").out.splitlines()[1:]]
    assert states == ["crashed", "changing", "draining", "dead"]


def test_scale_says_what_it_was_and_what_it_will_be() -> None:
    manager(snapshot(worker(), pools=(pool(wanted=1, least=1, most=3),)))
    answer = pitboss("pools", "scale", "download", "4")
    assert answer.code == 0
    assert 'pool "download" on box1 (manager 1): 1 worker → 4 workers (configured: 1 to 3' in answer.err
    assert answer.out == ""
    assert wishes() == {"pool/download": {"size": 4}}
    back = pitboss("pools", "scale", "download", "auto")
    assert "4 workers → 1 to 3, depending on load" in back.err
    assert wishes() == {}


def test_a_change_keeps_other_fields_even_of_other_releases() -> None:
    manager(snapshot(worker()))
    wish("pool/download", generation=3, paused=True, colour="blue")
    pitboss("pools", "scale", "download", "2")
    assert wishes()["pool/download"] == {"generation": 3, "paused": True, "colour": "blue", "size": 2}
    pitboss("pools", "resume", "download")
    assert wishes()["pool/download"] == {"generation": 3, "colour": "blue", "size": 2}
    pitboss("pools", "restart", "download")
    assert wishes()["pool/download"] == {"generation": 4, "colour": "blue", "size": 2}
    pitboss("pools", "scale", "download", "auto")
    pitboss("pools", "pause", "download")
    left = {"generation": 4, "colour": "blue", "paused": True, "paused_by": operator()}
    assert {key: value for key, value in wishes()["pool/download"].items() if key != "paused_at"} == left


@pytest.mark.parametrize("text", ["5", "nonsense", '"text"'])
def test_a_value_that_is_no_object_is_replaced(text: str) -> None:

    manager(snapshot(worker()))
    with_store(lambda store: store.wish("pool/download", text))
    assert pitboss("pools", "scale", "download", "2").code == 0
    assert wishes() == {"pool/download": {"size": 2}}


def test_a_change_for_all_hosts_replaces_those_of_single_ones() -> None:
    manager(snapshot(worker()))
    manager(snapshot(worker()), host="box2", pid=2)
    pitboss("pools", "scale", "download", "2", "--host", "box2")
    pitboss("pools", "restart", "download", "--host", "box2")
    assert wishes() == {"pool/download@box2": {"size": 2, "generation": 1}}
    answer = pitboss("pools", "scale", "download", "5")
    assert "replaces what was ordered for box2 alone" in answer.err
    assert wishes() == {"pool/download": {"size": 5}, "pool/download@box2": {"generation": 1}}
    pitboss("pools", "scale", "download", "2", "--host", "box1")
    only = pitboss("pools", "scale", "download", "auto", "--host", "box1")
    assert "2 workers → 5 workers, as on every host" in only.err


def test_one_host_can_go_on_while_the_others_are_paused() -> None:
    manager(snapshot(worker()))
    manager(snapshot(worker()), host="box2", pid=2)
    pitboss("pools", "pause", "download")
    pitboss("pools", "resume", "download", "--host", "box2")
    found = wishes()
    assert (found["pool/download"]["paused"], found["pool/download@box2"]) == (True, {"paused": False})
    known = DesiredState()

    known.take(with_store(lambda store: store.wishes()))
    assert (known.pool("download", "box1").paused, known.pool("download", "box2").paused) == (True, False)
    pitboss("pools", "resume", "download")
    assert wishes() == {}


def test_a_generation_only_grows() -> None:
    manager(snapshot(worker(generation=7), pools=(pool(wanted=1, generation=6),)))
    wish("pool/download@box9", generation=9)
    answer = pitboss("pools", "restart", "download")
    assert "1 worker of generation 6 → generation 10" in answer.err
    pitboss("pools", "restart", "download")
    assert wishes()["pool/download"] == {"generation": 11}


def test_pause_tells_what_still_runs() -> None:
    manager(snapshot(busy(tasks=3)))
    assert "running → paused; 3 tasks still running" in pitboss("pools", "pause", "download").err


def test_what_was_ordered_last_counts_before_the_manager_has_told_it() -> None:
    manager(snapshot(worker()))
    pitboss("pools", "scale", "download", "3")
    assert ": 3 workers → 2 workers" in pitboss("pools", "scale", "download", "2").err
    assert ": 2 workers already" in pitboss("pools", "scale", "download", "2").err
    pitboss("pools", "pause", "download")
    assert ": paused already" in pitboss("pools", "pause", "download").err
    assert ": paused → running" in pitboss("pools", "resume", "download").err
    assert ": running already" in pitboss("pools", "resume", "download").err
    pitboss("pools", "restart", "download")
    assert "of generation 1 → generation 2" in pitboss("pools", "restart", "download").err


@pytest.mark.parametrize("verb", [["scale", "downlaod", "2"], ["restart", "downlaod"], ["pause", "downlaod"]])
def test_an_unknown_pool_is_refused_with_the_known_ones(verb: list[str]) -> None:
    manager(snapshot(worker()))
    answer = pitboss("pools", *verb)
    assert answer.code == Exit.NOT_FOUND
    assert 'no manager runs a worker pool "downlaod"' in answer.err
    assert "the worker pools are download" in answer.err
    assert "did you mean download?" in answer.err
    assert wishes() == {}


def test_a_pool_that_does_not_run_can_be_changed_if_it_was_before() -> None:
    put(new())
    assert "no manager is running" in pitboss("pools", "scale", "download", "2").err
    wish("pool/download", size=3)
    answer = pitboss("pools", "scale", "download", "2")
    assert answer.code == 0
    assert "as soon as a manager runs it" in answer.err
    assert pitboss("pools", "scale", "download", "2", "--host", "box1").code == Exit.NOT_FOUND
    pitboss("pools", "scale", "download", "auto")
    assert wishes() == {}


def test_a_host_that_does_not_run_the_pool() -> None:
    manager(snapshot(worker()))
    answer = pitboss("pools", "scale", "download", "2", "--host", "bxo1")
    assert answer.code == Exit.NOT_FOUND
    assert "it runs on box1" in answer.err
    assert "did you mean --host box1?" in answer.err
    assert pitboss("pools", "list", "--host", "bxo1").code == Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["scale", "download", "many"], "is not a number of workers"),
        (["scale", "download", "1001"], "from 0 to 1,000"),
        (["scale", "download", "-1"], "No such option"),
        (["scale", "download", "1.5"], "is not a number of workers"),
        (["scale", "download", "²"], "is not a number of workers"),
        (["scale", "download"], "Missing argument"),
        (["scale", "down load", "1"], "cannot name a pool"),
        (["scale", "download", "auto", "--wait"], "--wait needs a number"),
        (["restart", "download", "--wait", "--timeout", "soon"], "--timeout 'soon' is not a duration"),
        (["pause", "a@b"], "cannot name a pool"),
    ],
)
def test_what_cannot_be_ordered(words: list[str], said: str) -> None:
    manager(snapshot(worker()))
    answer = pitboss("pools", *words)
    assert answer.code == Exit.USAGE
    assert said in answer.err
    assert wishes() == {}


def test_restart_waits_until_every_worker_is_new() -> None:
    number = manager(snapshot(busy(), worker("download-2")))

    def react(known: DesiredState) -> Snapshot | None:
        generation = known.pool("download", "box1").generation or 0
        ours = (pool(wanted=2, generation=generation),)
        return snapshot(worker(generation=generation), worker("download-2", generation=generation), pools=ours)

    with following(number, react):
        answer = pitboss("pools", "restart", "download", "--wait", "--timeout", "30s")
    assert answer.code == 0
    assert answer.err.splitlines()[-1] == "restarting download: done"


def test_waiting_ends_with_124_and_says_what_is_left() -> None:
    manager(snapshot(busy(), worker("download-2")))
    answer = pitboss("pools", "restart", "download", "--wait", "--timeout", "50ms")
    assert answer.code == Exit.TIMEOUT
    assert "restarting download: 0 of 3 after 50ms" in answer.err
    assert "box1: 0 of 2 workers are new" in answer.err
    assert wishes() == {"pool/download": {"generation": 1}}


def test_a_restart_that_cannot_succeed_ends_at_once() -> None:
    number = manager(snapshot(worker()))

    def react(_: DesiredState) -> Snapshot | None:
        return snapshot(crashed("download-1", "the app cannot be loaded"), pools=(pool(wanted=1, generation=1),))

    with following(number, react):
        answer = pitboss("pools", "restart", "download", "--wait", "--timeout", "30s")
    assert answer.code == Exit.FAILED
    assert "worker download-1 on box1 was given up (the app cannot be loaded)" in answer.err


def test_scale_waits_for_as_many_workers() -> None:
    number = manager(snapshot(worker()))
    looks = iter([WorkerState.STARTING, WorkerState.IDLE])

    def react(known: DesiredState) -> Snapshot | None:
        size = known.pool("download", "box1").size or 0
        state = next(looks, WorkerState.IDLE)
        return snapshot(*(worker(f"download-{n}", state=state) for n in range(1, size + 1)))

    with following(number, react):
        answer = pitboss("pools", "scale", "download", "3", "--wait", "--timeout", "30s")
    assert answer.code == 0
    assert "scaling download: done" in answer.err


def test_pause_waits_until_nothing_runs_and_resume_until_it_is_heard() -> None:
    number = manager(snapshot(busy()))

    def react(known: DesiredState) -> Snapshot | None:
        return snapshot(worker(), pools=(pool(wanted=1, paused=bool(known.pool("download", "box1").paused)),))

    with following(number, react):
        assert pitboss("pools", "pause", "download", "--wait", "--timeout", "30s").code == 0
        assert "paused" in pitboss("pools", "list").out
        assert pitboss("pools", "resume", "download", "--wait", "--timeout", "30s").code == 0
        assert "paused" not in pitboss("pools", "list").out


def test_pools_may_be_said_in_the_singular() -> None:
    manager(snapshot(worker()))
    assert pitboss("pool", "list").out == pitboss("pools", "list").out


def test_set_says_what_the_delay_was_and_will_be_and_reset_withdraws_it() -> None:
    manager(snapshot(worker(), pools=(pool(wanted=1, delay=(8_000_000, 20_000_000)),)))
    assert pitboss("pools", "set", "download").out == "box1 (manager 1)  delay 8s-20s, as configured\n"
    answer = pitboss("pools", "set", "download", "delay=12-25s")
    assert answer.code == 0
    assert 'pool "download" on box1 (manager 1): delay 8s-20s → delay 12s-25s (configured: 8s-20s)' in answer.err
    assert wishes() == {"pool/download": {"delay": [12_000_000, 25_000_000]}}
    assert "delay 12s-25s" in pitboss("pools", "list").out
    assert pitboss("pools", "list", "--json").json()["orders"] == {"download": {"delay": [12, 25]}}
    assert pitboss("pools", "set", "download").out == "box1 (manager 1)  delay 12s-25s (configured: 8s-20s)\n"
    page = pitboss("config", "show", "--origin").out.partition("Changed at run time\n")[2]
    assert page.splitlines()[1].split("  ")[0] == "pools.download.delay"
    assert "12s-25s" in page
    assert "8s-20s" in page
    assert "pitboss pools set download --reset" in page
    back = pitboss("pools", "set", "download", "--reset")
    assert "delay 12s-25s → delay 8s-20s, as configured" in back.err
    assert wishes() == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["workers=3"], "pitboss pools scale download 3"),
        (["memory=1GB"], "only its delay can"),
        (["delay"], "delay=12-25s"),
        (["delay=soon"], "'soon'"),
        (["delay=5-2s"], "begins after its end"),
        (["delay=3s", "--reset"], "--reset sets no keys"),
    ],
)
def test_what_cannot_be_set(arguments: list[str], said: str) -> None:
    manager(snapshot(worker()))
    answer = pitboss("pools", "set", "download", *arguments)
    assert answer.code == Exit.USAGE
    assert said in answer.err
    assert wishes() == {}
