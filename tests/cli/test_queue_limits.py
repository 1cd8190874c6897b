"""Limits of queues: declared, set above that by an operator, and withdrawn; and what `config show` says of changes."""

import re
from pathlib import Path

from pitboss.cli.errors import Exit
from pitboss.engines.capabilities import resources_of
from pitboss.engines.declared_protocol import Declarations
from pitboss.engines.protocol import Store
from pitboss.model.declared import Declared
from pitboss.model.duration import span
from pitboss.model.limits import rate
from pitboss.model.queue import QueueSettings
from pitboss.model.resource_keys import rules_of
from pitboss.model.retention import FOREVER
from pitboss.model.states import State
from tests.cli.command_line import new, pitboss, put, with_store
from tests.cli.fake_managers import manager, pool, snapshot, worker

MAIL = QueueSettings(capacity=1000, rate=rate("10/s"), retention={State.COMPLETED: span("1d"), State.FAILED: FOREVER})


def declare() -> None:
    async def work(store: Store) -> None:
        assert isinstance(store, Declarations)
        await store.declare(Declared(app="shop", queues={"mail": MAIL}))

    with_store(work)


def test_a_limit_of_an_operator_is_above_the_declared_one_until_it_is_reset() -> None:
    declare()
    answer = pitboss("queues", "limit", "mail", "--capacity", "7")
    assert answer.err == 'queue "mail": 10/1s, 7 may wait (capacity set by operator; declared: 10/1s, 1,000 may wait)\n'
    declare()
    assert answer.err.partition(": ")[2].strip() in pitboss("queues", "list").out
    page = pitboss("queues", "show", "mail").out
    assert re.search(r"capacity +7 +set by operator \(declared: 1,000\)", page)
    assert re.search(r"rate +10/1s +declared\n", page)
    assert "kept         completed 1d, failed forever" in page
    answer = pitboss("queues", "limit", "mail", "--reset")
    assert answer.err == 'queue "mail": 10/1s, 1,000 may wait, as declared\n'
    assert "operator" not in pitboss("queues", "list").out


def test_reset_keeps_what_the_same_command_sets() -> None:
    declare()
    pitboss("queues", "limit", "mail", "--capacity", "7")
    answer = pitboss("queues", "limit", "mail", "--reset", "--rate", "none")
    assert "1,000 may wait (rate set by operator; declared: 10/1s, 1,000 may wait)" in answer.err


def test_the_document_of_a_queue() -> None:
    declare()
    pitboss("queues", "limit", "mail", "--rate", "1/s")
    queue = pitboss("queues", "show", "mail", "--json").json()["queue"]
    assert (queue["limited"], queue["rate"]) == (["rate"], [{"count": 1, "seconds": 1.0}])
    assert queue["declared"] == {
        "capacity": 1000,
        "rate": [{"count": 10, "seconds": 1.0}],
        "max_per_key": None,
        "retention": {"completed": 86_400, "failed": None},
    }


def test_a_queue_without_limits_is_shown_too() -> None:
    put(new(), new())
    pitboss("queues", "pause", "default")
    page = pitboss("queues", "show", "default").out
    assert re.search(r"state +paused by \S+, now", page)
    assert re.search(r"tasks +2 pending\n", page)
    assert re.search(r"limits +none\n", page)


def test_a_misspelt_queue_is_not_created_by_a_reset() -> None:
    put(new())
    for command in (["limit", "defualt", "--reset"], ["show", "defualt"]):
        answer = pitboss("queues", *command)
        assert answer.code == Exit.NOT_FOUND
        assert "did you mean default?" in answer.err
    assert len(pitboss("queues", "list", "--json").json()["queues"]) == 1


def test_config_show_lists_what_operators_changed() -> None:
    declare()
    with_store(lambda store: resources_of(store).declare_pool("proxies", rules_of({"per_hour": 50})))
    manager(snapshot(worker(), pools=(pool(wanted=2, least=1, most=4),)))
    assert "Changed at run time: nothing" in pitboss("config", "show", "--origin").out
    for command in (
        "queues limit mail --capacity 7",
        "queues pause mail",
        "resources limit proxies per_hour=20",
        "pools scale download 3",
        "pools pause download --host box1",
        "drain --host box1 --yes --no-wait",
    ):
        assert pitboss(*command.split()).code == 0, command
    page = pitboss("config", "show", "--origin").out.partition("Changed at run time\n")[2]
    rows = [re.split(r"  +", line) for line in page.splitlines()]
    assert rows[0] == ["SETTING", "NOW", "DECLARED", "WITHDRAW WITH"]
    assert rows[1:] == [
        ["queues.mail.paused", "true", "false", "pitboss queues resume mail"],
        ["queues.mail.capacity", "7", "1,000", "pitboss queues limit mail --reset"],
        ["resources.proxies.per_hour", "20", "50", "pitboss resources limit proxies --reset"],
        ["pools.download.workers", "3", "1-4", "pitboss pools scale download auto"],
        ["pools.download@box1.paused", "true", "false", "pitboss pools resume download --host box1"],
        ["manager 1 on box1", "drained", "-", "pitboss drain --undo --manager 1"],
    ]
    found = pitboss("config", "show", "--origin", "--json").json()["changed_at_run_time"]
    assert [one["withdraw"] for one in found] == [row[3] for row in rows[1:]]
    for row in rows[1:]:
        words = row[3].removeprefix("pitboss ").split()
        assert pitboss(*words, *(["--yes", "--no-wait"] if words[0] == "drain" else [])).code == 0, row
    assert "Changed at run time: nothing" in pitboss("config", "show", "--origin").out
    assert "changed_at_run_time" not in pitboss("config", "show", "--json").json()


def test_the_configured_size_of_a_pool_that_does_not_run(folder: Path) -> None:
    (folder / "pitboss.toml").write_text('[pools.download]\nworkers = "1-8"\n')
    number = manager(snapshot(worker()))
    pitboss("pools", "scale", "download", "3")
    with_store(lambda store: store.end_session(number))
    page = pitboss("config", "show", "--origin", "--store", "sqlite:///pitboss.db").out
    command = f"pitboss pools scale download auto --store sqlite:///{folder}/pitboss.db"
    assert re.search(rf"pools.download.workers +3 +1-8 +{re.escape(command)}\n", page)


def test_config_show_works_without_a_store() -> None:
    for url in ("sqlite:///gone.db", "memory://", "postgresql://ann@127.0.0.1:1/x"):
        answer = pitboss("config", "show", "--origin", "--store", url)
        assert answer.code == 0
        assert answer.out.startswith("SETTING")
        assert "Changed at run time: not known, because " in answer.out.splitlines()[-1]
        document = pitboss("config", "show", "--origin", "--store", url, "--json").json()
        assert document["changed_at_run_time"] is None
        assert document["unknown_because"]


def test_a_limit_of_a_queue_that_did_not_exist_says_so() -> None:
    """A misspelt name made a queue without a word, and limited nothing."""
    put(new(queue="targets"))
    assert pitboss("queues", "limit", "tragets", "--max-per-key", "2").err == (
        'queue "tragets": 2 per key (max_per_key set by operator; declared: none)\n'
        'note: queue "tragets" is new; did you mean targets?\n'
        "note: max_per_key limits nothing yet: the queue has no partitions (partition_by)\n"
    )
    assert pitboss("queues", "limit", "mail", "--rate", "1/s").err.endswith('note: queue "mail" is new\n')
    assert "note" not in pitboss("queues", "limit", "mail", "--rate", "2/s").err
