"""What real managers leave in the log of happenings."""

import re
import shlex

from pitboss.model.canonical import from_json
from pitboss.model.happening import Kind
from pitboss.model.snapshot import WorkerState
from pitboss.model.states import State
from pitboss.operate.status import read_status
from tests.cli.command_line import pitboss
from tests.manager.cluster import Cluster


def test_the_life_of_two_managers_is_in_the_log(troubled: Cluster) -> None:
    cluster = troubled
    first = cluster.manager(workers=1)
    cluster.until(lambda: first.said("is ready"))
    (bomb,) = cluster.put("bomb")
    cluster.until(lambda: cluster.happenings(Kind.WORKER_CRASHED))
    cluster.until(lambda: cluster.happenings(Kind.RELEASE_CHANGED))
    crashed = cluster.happenings(Kind.WORKER_CRASHED)[0]
    assert (crashed.subject, from_json(crashed.details)["tasks"]) == ("worker default-1", [bomb])
    first.close()
    second = cluster.manager(workers=1)
    cluster.until(lambda: len(cluster.happenings(Kind.LEAD_CHANGED)) == 2)
    assert second.end() == 0
    kinds = [one.kind for one in cluster.happenings() if one.kind is not Kind.WORKER_CRASHED]
    assert sorted(kinds[:3]) == [Kind.LEAD_CHANGED, Kind.MANAGER_STARTED, Kind.RELEASE_CHANGED]
    assert sorted(kinds[3:]) == [Kind.LEAD_CHANGED, Kind.MANAGER_LOST, Kind.MANAGER_STARTED, Kind.MANAGER_STOPPED]
    (lost,) = cluster.happenings(Kind.MANAGER_LOST)
    # Its task runs again at once, so it may have run at the end.
    assert lost.text.startswith(f"manager {crashed.manager} on {lost.host} (pid {first.process.pid}) is gone")
    # Regression: a manager that started was "manager 0".
    assert all(one.text.startswith(f"manager {one.manager} ") for one in cluster.happenings(Kind.MANAGER_STARTED))
    assert all(one.manager for one in cluster.happenings(Kind.MANAGER_STARTED))
    last = cluster.happenings()[-1]
    assert last.text == f"manager {last.manager} on {last.host} has stopped"


def test_a_worker_that_crashes_again_and_again_is_the_verdict(troubled: Cluster) -> None:
    """Regression: a real manager names the worker, and the verdict looked for a pool of that name."""
    cluster = troubled
    manager = cluster.manager(workers=1)
    cluster.until(lambda: manager.said("is ready"))
    (bomb,) = cluster.put("bomb")
    cluster.until(lambda: cluster.task(bomb).state is State.FAILED, within=60)
    cluster.until(lambda: len(cluster.happenings(Kind.WORKER_CRASHED)) >= 3)
    cluster.until(
        lambda: any(one.state is WorkerState.IDLE for one in cluster.workers()), what="a worker after the crashes"
    )
    found = cluster.do(read_status(cluster.engine, cluster.engine.clock.now())).verdict
    assert found.cause == "crash-loop"
    assert re.fullmatch(r"Worker default-1 on \S+ crashes again and again: 3 crashes in 10m\.", found.sentence)
    assert re.match(r"worker default-1 \(pid \d+\) ended with exit code 3; 1 task was set aside", found.why), found.why
    logs, *others = (one.command for one in found.actions)
    assert logs == "pitboss logs manager"
    for command in others:
        answer = pitboss(*shlex.split(command)[1:], env={"PITBOSS_STORE": cluster.url})
        assert answer.code == 0, answer.err
        assert "default-1" in answer.out
