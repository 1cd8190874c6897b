"""The Dockerfiles follow the rules of hadolint and ours, and build from the files that they copy."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from http.server import HTTPServer
from pathlib import Path

import pytest

from tests.deploy.files import DOCKER, ROOT, instructions, named, tool

SERVER, WORKER = DOCKER / "Dockerfile", DOCKER / "worker.Dockerfile"
both = pytest.mark.parametrize("dockerfile", [SERVER, WORKER], ids=lambda path: path.name)


@both
def test_hadolint_finds_nothing(dockerfile: Path) -> None:
    command = [tool("hadolint", "make setup"), "--no-color", str(dockerfile)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


@both
def test_the_rules_for_images(dockerfile: Path) -> None:
    assert {text.split()[0] for text in named(dockerfile, "FROM")} == {"python:3.11-slim"}
    assert named(dockerfile, "USER") == ["1000:1000"]
    order = [name for name, _ in instructions(dockerfile)]
    assert not {"RUN", "COPY"} & set(order[order.index("USER") :])
    assert "ADD" not in order
    assert len(named(dockerfile, "HEALTHCHECK")) == 1
    for text in named(dockerfile, "RUN"):
        assert "pip" not in text or "--no-cache-dir" in text
        assert not re.search(r"\b(apt|apt-get|curl|wget)\b", text)


def test_a_worker_installs_its_requirements_before_its_code_is_copied() -> None:
    texts = [text for _, text in instructions(WORKER)]
    requirements, code = texts.index("${WORKER}/requirements.txt ./"), texts.index("${WORKER} ./")
    (install,) = (number for number, text in enumerate(texts) if "-r requirements.txt" in text)
    assert requirements < install < code


def test_a_worker_gets_pitboss_from_this_repository() -> None:
    """The name on the Python Package Index belongs to another project."""
    (install,) = (text for text in named(WORKER, "RUN") if "-r requirements.txt" in text)
    assert "pip install --no-cache-dir /wheels/*.whl -r requirements.txt" in install


def copied(dockerfile: Path) -> list[str]:
    """What the first stage copies from the repository."""
    texts = [text for text in named(dockerfile, "COPY") if not text.startswith(("--from", "${WORKER}"))]
    return [source for text in texts for source in text.split()[:-1]]


def test_the_copied_files_are_enough_to_build_pitboss(tmp_path: Path) -> None:
    assert copied(SERVER) == copied(WORKER)
    for source in copied(SERVER):
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, tmp_path)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "made"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert len(list(tmp_path.glob("made/pitboss-*.whl"))) == 1


def test_the_extra_that_the_server_installs_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = re.findall(r"'\.\[([\w,]+)\]'", SERVER.read_text())
    assert set(asked.split(",")) <= extras.keys() - {"dev"}


def test_secrets_and_history_stay_out_of_the_images() -> None:
    """Docker reads `NAME.dockerignore` beside a Dockerfile; a plain .dockerignore only in the root of what it sends."""
    server = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = [line for line in server if line.startswith("!")]
    assert server[1] == "*"
    assert allowed == ["!pyproject.toml", "!hatch_build.py", "!README.md", "!LICENSE", "!src"]
    assert {".git", "**/.env", "**/*.env", "**/*.db", "**/.venv"} <= set(
        (DOCKER / "worker.Dockerfile.dockerignore").read_text().splitlines()
    )


def health_check(port: int) -> int:
    """Run the server's check as Docker does, on another port and with a proxy in the environment."""
    (text,) = named(SERVER, "HEALTHCHECK")
    command = json.loads(text[text.index("[") :].replace("8000", str(port)))
    command[0] = sys.executable
    env = {"http_proxy": "http://127.0.0.1:9"}
    return subprocess.run(command, env=env, capture_output=True, timeout=30, check=False).returncode


def test_the_health_check_of_the_server(answering: HTTPServer) -> None:
    port = answering.server_port
    assert health_check(port) == 0
    answering.RequestHandlerClass.status = 503  # type: ignore[attr-defined]
    assert health_check(port) == 1
    answering.shutdown()
    answering.server_close()
    assert health_check(port) == 1
