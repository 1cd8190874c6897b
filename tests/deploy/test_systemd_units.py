"""The units are what systemd understands, and as closed as they can be."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import ROOT, SYSTEMD, tool, unit

UNITS = {"pitboss.service": "pitboss.service", "pitboss-worker@.service": "pitboss-worker@youtube.service"}


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [tool("systemd-analyze", "make systemd-analyze"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def installed(name: str, folder: Path) -> Path:
    """The unit with a program that exists here; systemd looks for it."""
    text, count = re.subn(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", (SYSTEMD / name).read_text())
    assert count == 1
    path = folder / UNITS[name]
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", UNITS)
def test_systemd_has_nothing_to_say_about_the_unit(name: str, tmp_path: Path) -> None:
    found = analyze("verify", "--man=no", str(installed(name, tmp_path)))
    assert (found.returncode, found.stderr) == (0, "")


def test_systemd_does_complain_about_an_unknown_key(tmp_path: Path) -> None:
    path = installed("pitboss.service", tmp_path)
    path.write_text(path.read_text().replace("[Service]", "[Service]\nHardened=yes"))
    assert "Unknown key 'Hardened'" in analyze("verify", "--man=no", str(path)).stderr


@pytest.mark.parametrize(("name", "most"), [("pitboss.service", 20), ("pitboss-worker@.service", 45)])
def test_the_exposure_of_a_unit_is_low(name: str, most: int, tmp_path: Path) -> None:
    """In tenths of systemd's scale from 0 (closed) to 10 (open); a unit without such options has 9.2."""
    path = installed(name, tmp_path)
    found = analyze("security", "--no-pager", "--offline=yes", f"--threshold={most}", str(path))
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_again_after_ten_seconds_and_reads_its_settings(name: str) -> None:
    keys = unit(name)
    assert (keys["Restart"], keys["RestartSec"]) == (["always"], ["10"])
    assert keys["EnvironmentFile"] == ["/etc/pitboss/" + ("pitboss.env" if name == "pitboss.service" else "%i.env")]
    assert keys["User"] == ["pitboss" if name == "pitboss.service" else "worker"]


def test_the_server_is_supervised_as_the_documentation_says() -> None:
    page = (ROOT / "docs" / "how-to" / "systemd.md").read_text()
    for key in ("Type", "WatchdogSec", "ExecReload", "KillMode", "TimeoutStopSec", "LimitNOFILE"):
        assert f"\n{key}={unit('pitboss.service')[key][0]}\n" in page


@pytest.mark.parametrize("name", UNITS)
def test_other_managers_on_the_host_stay_visible(name: str) -> None:
    """A manager that cannot be seen in /proc is taken for dead, and its tasks are given to others."""
    assert not unit(name).keys() & {"ProtectProc", "ProcSubset", "PrivatePIDs"}


def test_a_worker_logs_to_the_journal() -> None:
    keys = unit("pitboss-worker@.service")
    assert keys["StandardOutput"] == keys["StandardError"] == ["journal"]
