"""What real managers leave in the log of happenings."""

from pitboss.model.canonical import from_json
from pitboss.model.happening import Kind
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
    last = cluster.happenings()[-1]
    assert last.text == f"manager {last.manager} on {last.host} has stopped"
