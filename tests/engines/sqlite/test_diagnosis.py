"""What the engine reports about its file."""

from pathlib import Path

import pytest

from pitboss.engines.protocol import Diagnosis
from pitboss.engines.sqlite import diagnosis
from pitboss.model.finding import Grade
from tests.engines.sqlite.store import WallClock, opened

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /srv/nfs nfs4 rw 0 0
/dev/sdb1 /srv/nfs/local\\040disk xfs rw 0 0
overlay /container overlay rw 0 0
"""


async def test_an_engine_reports_its_modes_and_its_free_space(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as engine:
        assert isinstance(engine, Diagnosis)
        found = {finding.check: finding for finding in await engine.diagnose(WallClock())}
    assert found["durability"].grade is Grade.OK
    assert "journal_mode=wal, synchronous=full" in found["durability"].what
    assert {"disk", "journal"} <= found.keys()


@pytest.mark.parametrize(("journal", "synchronous"), [("delete", 2), ("wal", 1), ("wal", 0)])
def test_modes_that_lose_what_was_acknowledged(journal: str, synchronous: int) -> None:
    assert diagnosis.of_modes(journal, synchronous).grade is Grade.PROBLEM
    assert diagnosis.of_modes("wal", 3).grade is Grade.OK


@pytest.mark.parametrize(
    ("path", "kind", "grade"),
    [
        ("/var/lib/x.db", "ext4", Grade.OK),
        ("/tmp/x.db", "tmpfs", Grade.WARNING),
        ("/tmpfile/x.db", "ext4", Grade.OK),
        ("/srv/nfs/x.db", "nfs4", Grade.PROBLEM),
        ("/srv/nfs/local disk/x.db", "xfs", Grade.OK),
        ("/container/x.db", "overlay", Grade.WARNING),
    ],
)
def test_the_file_system_that_a_file_is_on(path: str, kind: str, grade: Grade, tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    assert diagnosis.file_system(Path(path), tmp_path / "mounts") == kind
    finding = diagnosis.of_file_system(Path(path), kind)
    assert finding is not None
    assert finding.grade is grade


def test_a_system_that_does_not_report_its_mounts(tmp_path: Path) -> None:
    assert diagnosis.file_system(Path("/x"), tmp_path / "none") is None
    assert diagnosis.of_file_system(Path("/x"), None) is None


def test_a_log_that_is_never_used_again(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with (tmp_path / "store.db-wal").open("wb") as log:
        log.truncate(2 * 1024**3)  # takes no room on disk
    found = {finding.check: finding for finding in diagnosis.of_file(store)}
    assert found["journal"].grade is Grade.WARNING
