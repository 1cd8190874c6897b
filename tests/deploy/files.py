"""Reads the files in deploy/."""

import json
import re
import select
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from tests.cli.command_line import Process

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SYSTEMD, DOCKER, KUBERNETES = DEPLOY / "systemd", DEPLOY / "docker", DEPLOY / "kubernetes"


class Instruction(NamedTuple):
    """One instruction of a Dockerfile, with its continuation lines."""

    name: str
    text: str


class Serving(NamedTuple):
    """A server that runs. `notified` is where systemd hears of it."""

    process: Process
    port: int
    client: httpx.Client
    worker_key: str
    viewer_key: str
    notified: socket.socket

    def until(self, line: str) -> None:
        """Wait until systemd has heard this line."""
        while line not in self.notified.recv(4096).decode().split("\n"):
            pass

    def forget(self) -> None:
        """Empty the socket: messages that do not fit into it are lost."""
        while select.select([self.notified], [], [], 0)[0]:
            self.notified.recv(4096)


def tool(name: str, made_by: str) -> str:
    """The path of a program that a test needs. A missing one is an error, not a reason to skip."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is missing; `{made_by}` installs it")
    return found


def instructions(dockerfile: Path) -> list[Instruction]:
    kept = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(kept))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def named(dockerfile: Path, name: str) -> list[str]:
    """The arguments of every instruction with this name."""
    return [text for each, text in instructions(dockerfile) if each == name]


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes document with the name of its file."""
    for path in sorted(KUBERNETES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


def manifest(kind: str, name: str) -> dict[str, Any]:
    (found,) = (
        each for _, each in manifests() if each["kind"] == kind and each.get("metadata", {}).get("name") == name
    )
    return found


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


def variables(path: Path) -> dict[str, str]:
    """The variables of a file of settings, those that are commented out included."""
    return dict(re.findall(r"^#?([A-Z][A-Z_]+)=(.*)$", path.read_text(), re.MULTILINE))


def unit(name: str) -> dict[str, list[str]]:
    """The keys of a unit with their values, in order."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (SYSTEMD / name).read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def image_command() -> list[str]:
    """The arguments of `pitboss` in the image, with a free port."""
    assert json.loads(named(DOCKER / "Dockerfile", "ENTRYPOINT")[0]) == ["pitboss"]
    return ["0" if word == "8000" else word for word in json.loads(named(DOCKER / "Dockerfile", "CMD")[0])]
