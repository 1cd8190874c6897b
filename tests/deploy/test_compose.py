"""compose.yaml fits the Compose specification, and its parts fit each other."""

import re
import subprocess
import tomllib
from typing import Any

import pytest

from tests.deploy.files import DOCKER, ROOT, compose, named, tool, variables

FILE = DOCKER / "compose.yaml"
# ${NAME:?message} is required, ${NAME:-value} has a default.
USE = re.compile(r"\$\{(\w+)(?::([?-])([^}]*))?\}")


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"]
    return found


def test_the_file_fits_the_specification() -> None:
    command = [tool("check-jsonschema", "make setup"), "--builtin-schema", "vendor.compose-spec", str(FILE)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert found.returncode == 0, found.stdout


def test_every_variable_is_explained_and_has_the_same_default() -> None:
    uses = {(name, kind, value) for name, kind, value in USE.findall(FILE.read_text())}
    example = variables(DOCKER / ".env.example")
    assert {name for name, _, _ in uses} == example.keys()
    assert {name: value for name, kind, value in uses if kind == "-"} == {
        name: example[name] for name, kind, _ in uses if kind == "-"
    }
    assert {name for name, kind, _ in uses if kind == "?"} == {"POSTGRES_PASSWORD"}
    assert {kind for _, kind, _ in uses} == {"?", "-"}


def test_every_variable_in_the_example_has_a_comment_before_it() -> None:
    blocks = (DOCKER / ".env.example").read_text().split("\n\n")[1:]
    assert all(re.fullmatch(r"(# .+\n)+[A-Z_]+=.*\n?", block) for block in blocks)


def test_no_secret_is_written_into_the_file(services: dict[str, Any]) -> None:
    for service in services.values():
        for name, value in service["environment"].items():
            if re.search("PASSWORD|KEY", name):
                assert USE.fullmatch(value)


def test_a_service_waits_until_the_one_that_it_needs_is_healthy(services: dict[str, Any]) -> None:
    waits = {name: service.get("depends_on", {}) for name, service in services.items()}
    healthy = {"condition": "service_healthy"}
    assert waits == {"postgres": {}, "server": {"postgres": healthy}, "worker": {"server": healthy}}
    for need in ("postgres", "server"):
        built = services[need].get("build")
        assert "healthcheck" in services[need] or named(ROOT / built["dockerfile"], "HEALTHCHECK")


def test_the_database_keeps_its_data_in_a_volume(services: dict[str, Any]) -> None:
    volumes = compose()["volumes"]
    for name in ("postgres", "server"):
        source, _ = services[name]["volumes"][0].split(":")
        assert source in volumes


def test_images_have_a_version(services: dict[str, Any]) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for service in services.values():
        name, _, tag = service["image"].partition(":")
        assert re.fullmatch(r"\d+(\.\d+)*", tag)
        assert name == "postgres" or version.startswith(f"{tag}.")


def test_builds_find_their_files(services: dict[str, Any]) -> None:
    for name in ("server", "worker"):
        build = services[name]["build"]
        root = (DOCKER / build["context"]).resolve()
        assert root == ROOT
        assert (root / build["dockerfile"]).is_file()


def test_two_workers_with_names_of_their_own(services: dict[str, Any]) -> None:
    """A fixed name would be the same for both; a fixed host name would make one manager take another for dead."""
    assert services["worker"]["deploy"]["replicas"] == 2
    for service in services.values():
        assert not service.keys() & {"container_name", "hostname", "network_mode", "pid"}
        assert "WORKER_ID" not in service["environment"]


def test_only_this_machine_reaches_the_server(services: dict[str, Any]) -> None:
    assert services["server"]["ports"] == ["127.0.0.1:${PUBLISHED_PORT:-8000}:8000"]
    assert not any("ports" in services[name] for name in ("postgres", "worker"))


def test_workers_reach_the_server_by_its_name_and_port(services: dict[str, Any]) -> None:
    assert services["worker"]["environment"]["TASKMANAGER_API_URL"] == "http://server:8000/api"
    assert named(DOCKER / "Dockerfile", "EXPOSE") == ["8000"]
