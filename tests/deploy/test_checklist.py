"""The checklist for a worker in docs/how-to/deploy.md, step by step and as printed, with examples/video_metadata."""

import json
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from http.server import HTTPServer
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pitboss.remote.config import SETTINGS
from tests.deploy.files import DOCKER, ROOT, Serving, named, unit
from tests.docs.pages import clean

EXAMPLE = ROOT / "examples" / "video_metadata"
PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
INSTALL, CONFIGURE, VERIFY, CONNECT, RUN = (
    textwrap.dedent(block) for block in re.findall(r"^\d\. .*?```sh\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
)
(CHECK,) = named(DOCKER / "worker.Dockerfile", "HEALTHCHECK")
HEALTH_CHECK: list[str] = json.loads(CHECK[CHECK.index("[") :])
# The unit and the image start a worker in the same way.
BY_NAME = [*json.loads(named(DOCKER / "worker.Dockerfile", "ENTRYPOINT")[0]), "worker.py:Worker"]


class WorkerFolder:
    """A copy of the example. Commands in it see the variables of its .env only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        own = {each["env"] for each in SETTINGS.values()}
        self._env = {name: value for name, value in clean().items() if name not in own and "YOUTUBE" not in name}

    def shell(self, commands: str) -> subprocess.CompletedProcess[str]:
        return self._run(["bash", "-ec", commands])

    def healthy(self) -> bool:
        """What Docker and Kubernetes find out."""
        return self._run(HEALTH_CHECK).returncode == 0

    def configure(self, **values: str) -> None:
        """Edit .env."""
        path = self.path / ".env"
        text = path.read_text()
        for name, value in values.items():
            text, count = re.subn(rf"(?m)^{name}=.*$", f"{name}={value}", text)
            assert count == 1, f".env.example has no {name}"
        path.write_text(text)

    def start(self, command: list[str]) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, *command[1:]], cwd=self.path, env=self._env, stderr=subprocess.PIPE, text=True
        )

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.path, env=self._env, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def folder(tmp_path: Path, serving: Serving, answering: HTTPServer) -> WorkerFolder:
    """After step 2, with the address and key of a real server; the video API is any site that answers."""
    left_out = shutil.ignore_patterns("__pycache__", ".env", "logs", "build")
    found = WorkerFolder(shutil.copytree(EXAMPLE, tmp_path / "worker", ignore=left_out))
    done = found.shell(CONFIGURE)
    assert done.returncode == 0, done.stderr
    found.configure(
        TASKMANAGER_API_URL=f"http://127.0.0.1:{serving.port}/api",
        TASKMANAGER_API_KEY=serving.worker_key,
        YOUTUBE_API_KEY="made-up",
        YOUTUBE_API_URL=f"http://127.0.0.1:{answering.server_port}",
    )
    return found


def test_step_1_the_requirements_are_what_the_tests_run_with() -> None:
    assert INSTALL.endswith("pip install /opt/pitboss/src -r requirements.txt\n")
    lines = [line.partition("#")[0].strip() for line in (EXAMPLE / "requirements.txt").read_text().splitlines()]
    for requirement in map(Requirement, filter(None, lines)):
        assert requirement.specifier.contains(version(requirement.name), prereleases=True)


def test_step_2_keeps_the_key_to_yourself(folder: WorkerFolder) -> None:
    assert (folder.path / ".env").stat().st_mode & 0o777 == 0o600


def test_step_3_accepts_a_configuration_and_names_what_is_missing(folder: WorkerFolder) -> None:
    done = folder.shell(VERIFY)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    folder.configure(YOUTUBE_API_KEY="")
    done = folder.shell(VERIFY)
    assert done.returncode == 1
    assert "YOUTUBE_API_KEY" in done.stderr


def test_step_4_reaches_the_server(folder: WorkerFolder) -> None:
    done = folder.shell(CONNECT)
    assert done.returncode == 0, done.stderr
    assert folder.healthy()


def test_step_4_is_false_with_a_wrong_key(folder: WorkerFolder) -> None:
    folder.configure(TASKMANAGER_API_KEY="pbk_nosuch_key")
    assert not folder.healthy()


def test_step_5_and_the_unit_start_a_worker_that_stops_when_asked(folder: WorkerFolder) -> None:
    assert unit("pitboss-worker@.service")["ExecStart"][0].split()[1:] == [*BY_NAME[1:3], "${WORKER}"]
    folder.configure(POLL_INTERVAL="0.1")
    workers = [folder.start(command) for command in (RUN.split(), BY_NAME)]
    try:
        for worker in workers:
            assert worker.stderr
            assert any("Worker started" in line for line in worker.stderr)
            worker.send_signal(signal.SIGTERM)
        assert [worker.wait(30) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
