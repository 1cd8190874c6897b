"""Remote workers: nothing is lost and nothing is accepted twice, whatever is killed or stopped."""

from pathlib import Path

from tests.faults.remote_race import race


def test_two_workers_race_one_is_stopped_and_the_server_is_killed(tmp_path: Path) -> None:
    ended = race(tmp_path, f"sqlite:///{tmp_path}/race.db", tasks=800, kills=2)
    assert ended.faults(800) == []
    assert ended.kills == 2
    assert ended.late >= 1, "the stopped worker had nothing to report late"
