"""`pitboss db backup`, `pitboss db check`, and a damaged file as `up` and `doctor` see it."""

import subprocess
from pathlib import Path

from pitboss.cli.errors import Exit
from tests.cli.command_line import PITBOSS, new, pitboss, put

APP = "from pitboss import App\napp = App()\n\n@app.task\ndef greet(name: str) -> str:\n    return name\n"
PAGE = 4096


def _damage(path: Path) -> None:
    """Overwrite a leaf of the table of tasks."""
    data = bytearray(path.read_bytes())
    pages = [page for page in range(len(data) // PAGE) if data[page * PAGE] == 0x0D]
    page = pages[len(pages) // 2]
    data[page * PAGE : (page + 1) * PAGE] = b"\xee" * PAGE
    path.write_bytes(data)


def test_a_backup_is_one_file_that_opens_and_is_not_overwritten(folder: Path) -> None:
    put(*(new() for _ in range(50)))
    answer = pitboss("db", "backup", "copy.db")
    assert answer.code == 0, answer.err
    assert "was copied to copy.db" in answer.err
    assert "to restore it, stop all managers" in answer.err
    assert (folder / "copy.db").stat().st_mode & 0o777 == 0o600
    assert pitboss("status", "--json", "--store", "sqlite:///copy.db").json()["queues"][0]["counts"]["pending"] == 50
    before = (folder / "copy.db").read_bytes()
    answer = pitboss("db", "backup", "copy.db")
    assert answer.code == Exit.REFUSED
    assert "--force" in answer.err
    assert (folder / "copy.db").read_bytes() == before
    assert pitboss("db", "backup", "copy.db", "--force").code == 0
    assert pitboss("db", "backup", "no/such/folder.db").code == Exit.USAGE
    assert [path.name for path in folder.glob(".*part*")] == []


def test_a_damaged_file_is_found_by_check_doctor_and_up_and_saved(folder: Path) -> None:
    (folder / "app.py").write_text(APP)
    put(*(new(params='{"name":"%s"}' % ("x" * 300)) for _ in range(500)))
    assert pitboss("db", "check").code == 0
    _damage(folder / "pitboss.db")
    for args in (["db", "check", "--json"], ["doctor", "--json"]):
        answer = pitboss(*args)
        assert answer.code == Exit.UNHEALTHY
        (found,) = [one for one in answer.json()["checks"] if one["check"] == "content"]
        assert found["grade"] == "problem"
        assert "pitboss db backup saved.db --salvage" in found["fix"]
    up = subprocess.run([PITBOSS, "up", "app.py"], cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    assert up.returncode == Exit.UNREACHABLE
    assert "is damaged" in up.stderr
    assert "--salvage" in up.stderr
    assert pitboss("db", "backup", "saved.db", "--salvage").code == 0
    assert pitboss("db", "check", "--full", "--store", "sqlite:///saved.db").code == 0
    assert pitboss("status", "--store", "sqlite:///saved.db").code == 0
