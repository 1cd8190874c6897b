"""`pitboss partitions`: what it prints, what it changes, and what it refuses; and partitions in other commands."""

from collections.abc import Mapping
from pathlib import Path

from pitboss.cli.errors import Exit
from pitboss.engines.capabilities import partitions_of
from pitboss.engines.declared_protocol import Declarations
from pitboss.engines.protocol import Store
from pitboss.model.declared import Declared
from pitboss.model.partition import Mode, Partition, Partitioning
from pitboss.model.queue import QueueSettings
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from tests.cli.command_line import new, pitboss, put, with_store
from tests.cli.fake_managers import manager, pool, snapshot, worker
from tests.operate.test_partitions import EVERY_STATE, STATES

TABLE = {0: ("CA", "MT"), 1: ("TX",), 2: ("NY",)}
OWNERS = {"CA": "web/0", "MT": "web/0", "TX": "web/1", "NY": "web/2"}
APP = """
from pitboss import App

app = App()
app.queue("targets", partition_by="{state}", partitions=%s, keys=%s)

@app.task(queue="targets")
def crawl(state: str) -> None: ...
"""


def divide(mode: Mode = "static", owners: Mapping[str, str] = OWNERS, *, run: bool = False) -> None:
    """A queue with partitions, two slots on box1, and a leader that gives out these keys. `run`: a task of TX runs."""
    spec = Partitioning(by="{state}", mode=mode, table=TABLE if mode == "static" else {})

    async def work(store: Store) -> None:
        assert isinstance(store, Declarations)
        me = (await store.open_session(SessionInfo(host="box1", pid=1, handlers=("greet",), ttl=3_600_000_000))).number
        queues = {"targets": QueueSettings(partitions=spec, max_per_key=5)}
        await store.declare(Declared(app="a", queues=queues), session=me)
        await partitions_of(store).take_slots(me, "web", "box1", [0, 1])
        await partitions_of(store).assign("targets", owners, term=(await store.campaign(me)).term)
        if run:
            slot = Slot(free=1, pool="web", number=1, queues=("targets",))
            assert (await store.claim(ClaimRequest(session=me, slots=(slot,)))).claims

    with_store(work)


def target(*states: str) -> None:
    put(*(new(params=f'{{"name":"x","state":"{state}"}}', queue="targets") for state in states))


def key(name: str) -> Partition:
    async def work(store: Store) -> Partition:
        return next(one for one in await partitions_of(store).partitions("targets") if one.key == name)

    return with_store(work)


def test_show_lists_slots_with_their_keys_and_keys_without_a_live_slot() -> None:
    divide()
    target("CA", "CA", "MT", "TX", "NY", "ZZ")
    divide(run=True)
    answer = pitboss("partitions", "show", "targets")
    assert answer.code == 0
    assert answer.out == (
        "queue        targets\n"
        "partitions   by {state}, static: 3 slots, 4 keys; missing slots: hold\n"
        "per key      at most 5 tasks at once\n"
        "tasks        5 waiting, 1 running\n"
        "largest slot 1.80 times the mean\n"
        "\n"
        "SLOT   WORKER  NODE  STATE    WAITING  RUNNING  SHARE  KEYS  WHICH\n"
        "web/0          box1  alive          3        0    50%     2  CA, MT\n"
        "web/1          box1  alive          0        1    17%     1  TX\n"
        "web/2                missing        1        0    17%     1  NY\n"
        "\n"
        "Keys without a live slot\n"
        "KEYS  WAITING  WHY\n"
        "NY          1  belongs to slot web/2, which no worker has; start it, or set on_missing\n"
        "ZZ          1  is owned by no slot: it is not in the table of partitions\n"
    )
    document = pitboss("partitions", "show", "targets", "--json").json()
    assert [one["slot"] for one in document["slots"]] == ["web/0", "web/1", "web/2"]
    assert [one["cause"] for one in document["unowned"]] == ["slot-missing", "not-in-table"]


def test_held_tasks_wait_in_every_figure() -> None:
    """The rows of slots left out held items of batches, which the tasks above and the shares beside counted."""
    divide()
    target("CA", "NY")
    put(*(new(handler="stranger", params=f'{{"state":"{state}"}}', queue="targets") for state in ("CA", "CA", "NY")))
    divide()
    lines = pitboss("partitions", "show", "targets").out.splitlines()
    assert "tasks        5 waiting (3 of them held), 0 running" in lines
    rows = [line.split() for line in lines]
    assert ["web/0", "box1", "alive", "3", "0", "60%", "2", "CA,", "MT"] in rows
    assert ["web/2", "missing", "2", "0", "40%", "1", "NY"] in rows
    assert ["NY", "2", "belongs"] in [row[:3] for row in rows]


def test_a_queue_without_workers_or_partitions() -> None:
    put(new())
    answer = pitboss("partitions", "show", "default")
    assert (answer.code, answer.out) == (Exit.USAGE, "")
    assert 'queue "default" has no partitions' in answer.err
    assert "did you mean default?" in pitboss("partitions", "show", "defualt").err


def test_a_key_is_moved_and_pinned_and_each_act_is_audited() -> None:
    divide("balanced")
    target("CA", "TX", "TX")
    divide("balanced", {"CA": "web/0", "TX": "web/1"}, run=True)
    assert pitboss("partitions", "move", "targets", "CA", "1").err == "CA belongs to web/1\n"
    moving = "TX moves from web/1 to web/0 when 1 running task ends"
    assert pitboss("partitions", "move", "targets", "TX", "web/0").err == f"{moving}\n"
    shown = pitboss("partitions", "show", "targets")
    assert f"Moving\n{moving}\n" in shown.out
    answer = pitboss("partitions", "pin", "targets", "CA", "0")
    assert answer.err == "CA belongs to web/0; it stays there until --off\n"
    assert key("CA").pinned == "web/0"
    shown = pitboss("partitions", "show", "targets")
    assert "CA*" in shown.out
    assert shown.err == "* pinned\n"
    answer = pitboss("partitions", "pin", "targets", "CA", "--off")
    assert answer.err == "CA is not pinned any more; CA belongs to web/0\n"
    assert key("CA").pinned is None
    entries = pitboss("audit", "--json").json()["entries"]
    assert [(one["act"], one["target"], one["details"]) for one in entries] == [
        ("partitions pin", "targets CA", {"off": True}),
        ("partitions pin", "targets CA 0", {}),
        ("partitions move", "targets TX web/0", {}),
        ("partitions move", "targets CA 1", {}),
    ]


def test_the_end_of_a_pin_says_where_the_key_goes() -> None:
    """It said that the key belongs to the slot that it was about to leave, also of a key that was never pinned."""
    divide()
    target("CA")
    divide()
    assert pitboss("partitions", "pin", "targets", "CA", "--off").err == "CA was not pinned; CA belongs to web/0\n"
    pitboss("partitions", "pin", "targets", "CA", "1")
    answer = pitboss("partitions", "pin", "targets", "CA", "--off")
    assert answer.err == "CA is not pinned any more; it goes back to web/0, as the table says\n"


def test_what_cannot_be_moved_is_refused_with_what_helps() -> None:
    divide()
    target("CA")
    divide()
    for words, code, said in (
        (["move", "targets", "CAL", "1"], Exit.NOT_FOUND, "did you mean CA?"),
        (["move", "targets", "CA", "9"], Exit.NOT_FOUND, "its slots are web/0, web/1, web/2"),
        (["move", "targets", "CA", "1"], Exit.REFUSED, "pitboss partitions pin targets CA web/1"),
        (["pin", "targets", "CA"], Exit.USAGE, "a pin needs a slot, or --off"),
        (["pin", "targets", "CA", "1", "--off"], Exit.USAGE, "--off takes no slot"),
    ):
        answer = pitboss("partitions", *words)
        assert (answer.code, said in answer.err) == (code, True), answer.err
    assert pitboss("audit", "--json").json()["entries"] == []


def test_the_table_of_an_app_is_validated_before_it_is_stored(folder: Path) -> None:
    (folder / "app.py").write_text(APP % (STATES, EVERY_STATE))
    answer = pitboss("partitions", "validate", "targets", "--app", "app.py")
    assert answer.code == 0, answer.err
    assert answer.out == (
        "✓ Partitions of targets are valid\n"
        "  - 10 slots\n"
        "  - 5 keys per slot (slot 4 has 6)\n"
        "  - 51 total keys\n"
        "  - No duplicates\n"
        "  - No missing keys\n"
    )
    answer = pitboss("partitions", "validate", "tragets", "--app", "app.py")
    assert answer.code == Exit.FAILED
    assert "it declares those of targets" in answer.err


def test_a_table_that_the_declared_pools_do_not_serve_is_warned_of(folder: Path) -> None:
    table = {0: ["CA"], 1: ["TX"], 2: ["NY"]}
    text = APP % (table, ["CA", "TX", "NY"]) + 'app.pool("web", queues=["targets"], workers=2)\n'
    (folder / "app.py").write_text(text)
    answer = pitboss("partitions", "validate", "targets", "--app", "app.py")
    warning = "  ! Slot 2 needs another host or more workers: worker pool web has 2 workers"
    assert (answer.code, answer.out.splitlines()[-1]) == (0, warning)
    (folder / "app.py").write_text(text.replace("keys=", 'pool="nix", keys='))
    answer = pitboss("partitions", "validate", "targets", "--app", "app.py")
    warning = "  ! Worker pool nix is declared nowhere; those that serve it are web"
    assert (answer.code, answer.out.splitlines()[-1]) == (0, warning)


def test_an_app_that_cannot_be_loaded_is_no_broken_table(folder: Path) -> None:
    answer = pitboss("partitions", "validate", "targets", "--app", "missing.py")
    assert (answer.code, "there is no file" in answer.err) == (Exit.USAGE, True)


def test_long_keys_are_cut_in_tables_and_whole_in_json() -> None:
    divide("balanced")
    target("k" * 300)
    for words in (["partitions", "show", "targets"], ["tasks", "list"], ["plan"]):
        assert "k" * 41 not in pitboss(*words).out
    (task,) = pitboss("tasks", "list", "--json").json()["tasks"]
    assert len(task["partition"]) == 200
    assert f"{'k' * 31}…{task['partition'][-8:]}" in pitboss("tasks", "list").out


def test_a_number_below_zero_is_a_slot_that_does_not_exist() -> None:
    divide()
    for verb in ("move", "pin"):
        answer = pitboss("partitions", verb, "targets", "CA", "-1")
        assert answer.code == Exit.NOT_FOUND
        assert "its slots are web/0, web/1, web/2, numbered from 0 on" in answer.err


def test_a_node_is_no_host_and_the_error_says_where_it_runs() -> None:
    pool_of = pool("web")
    manager(snapshot(worker(pool="web"), pools=(pool_of,)), host="vm")

    async def work(store: Store) -> None:
        (session,) = await store.sessions()
        await partitions_of(store).take_slots(session.number, "web", "boxa", [0])

    with_store(work)
    for words in (["pools", "scale", "web", "3", "--host", "boxa"], ["ps", "--host", "boxa"]):
        answer = pitboss(*words)
        assert answer.code == Exit.NOT_FOUND
        assert "boxa is a node" in answer.err
        assert "--host vm means all managers of that host" in answer.err


def test_a_broken_table_of_an_app_fails_with_every_problem(folder: Path) -> None:
    (folder / "app.py").write_text(APP % ({0: ["CA", "TX"], 2: ["TX"]}, ["CA", "TX", "NY"]))
    answer = pitboss("partitions", "validate", "targets", "--app", "app.py")
    assert answer.code == Exit.FAILED
    for said in ("keys in two slots: TX (slots 0, 2)", "missing keys: NY", "slots that are left out: 1"):
        assert said in answer.err


def test_the_table_of_the_settings_is_validated_with_the_tasks_of_the_store(folder: Path) -> None:
    text = '[queues.targets]\npartition_by = "{state}"\n[queues.targets.partitions]\n0 = ["CA"]\n1 = ["TX"]\n'
    (folder / "pitboss.toml").write_text(text)
    answer = pitboss("partitions", "validate", "targets")
    assert answer.out.splitlines()[-1] == "  - Missing keys are not checked: keys= is not declared"
    divide()
    target("CA", "CA", "CA", "TX")
    answer = pitboss("partitions", "validate", "targets")
    assert answer.out.splitlines()[-1] == "  - The largest slot (0) has 1.50 times the mean work, by waiting tasks"
    (folder / "pitboss.toml").write_text(text + '2 = ["TX"]\n')
    answer = pitboss("partitions", "validate", "targets")
    assert (answer.code, "keys in two slots: TX (slots 1, 2)" in answer.err) == (Exit.FAILED, True)


def test_what_is_stored_is_validated_without_an_app() -> None:
    divide()
    target("NY", "NY")
    answer = pitboss("partitions", "validate", "targets", "--json")
    assert answer.code == 0
    assert answer.json()["valid"] is True
    assert answer.json()["skew"] == 3.0
    assert pitboss("partitions", "validate", "targets").out.startswith(
        "✓ Partitions of targets are valid\n  - 3 slots\n"
    )
    divide("balanced")
    answer = pitboss("partitions", "validate", "targets")
    assert answer.out == "✓ Partitions of targets are valid\n  - Mode balanced: the leader divides the keys {state}\n"


def test_other_commands_show_partitions() -> None:
    divide()
    target("CA", "ZZ")
    divide()
    page = pitboss("queues", "show", "targets").out
    assert "partitions   by {state}, static: 3 slots, 4 keys; missing slots: hold\n" in page
    assert "max_per_key  5    declared\n" in page
    assert "PARTITION" in pitboss("tasks", "list").out
    (task,) = pitboss("tasks", "list", "partition:CA", "--json").json()["tasks"]
    assert task["partition"] == "CA"
    assert "partition    CA\n" in pitboss("tasks", "show", task["id"]).out
    status = pitboss("status")
    assert 'warning: queue "targets": 1 task of 1 key waits without a live slot: ZZ' in status.err
    put(new())
    assert "PARTITION" not in pitboss("tasks", "list", "queue:default").out


def test_the_limit_per_key_is_set_and_reset() -> None:
    divide()
    answer = pitboss("queues", "limit", "targets", "--max-per-key", "2")
    assert answer.err == 'queue "targets": 2 per key (max_per_key set by operator; declared: 5 per key)\n'
    assert pitboss("queues", "limit", "targets", "--max-per-key", "0").code == Exit.USAGE
    assert pitboss("queues", "limit", "targets", "--max-per-key", "none").err.startswith('queue "targets": no limits (')
    assert pitboss("queues", "limit", "targets", "--reset").err == 'queue "targets": 5 per key, as declared\n'
