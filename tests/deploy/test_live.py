"""A real server, started as the files in deploy/ start it, answers what they ask it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.command_line import PITBOSS, pitboss
from tests.deploy.files import DOCKER, ROOT, Serving, image_command, manifest, named, unit
from tests.docs.pages import clean

(TRIGGER,) = manifest("ScaledObject", "pitboss-worker")["spec"]["triggers"]
(SERVER,) = manifest("Deployment", "pitboss")["spec"]["template"]["spec"]["containers"]


def test_the_unit_and_the_image_start_the_same_program() -> None:
    assert unit("pitboss.service")["ExecStart"][0].split()[1:] == SERVER["args"][:1]


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_needs_no_key_and_may_come_from_another_host(serving: Serving, probe: str) -> None:
    answer = serving.client.get(SERVER[probe]["httpGet"]["path"], headers={"Host": "10.1.2.3:8000"})
    assert answer.status_code == 200


def test_the_health_check_of_the_image_finds_it_healthy(serving: Serving) -> None:
    (text,) = named(DOCKER / "Dockerfile", "HEALTHCHECK")
    check = json.loads(text[text.index("[") :].replace("8000", str(serving.port)))
    subprocess.run([sys.executable, *check[1:]], check=True, timeout=30)


def test_systemd_hears_signs_of_life_and_a_reload_keeps_it_serving(serving: Serving) -> None:
    serving.until("WATCHDOG=1")
    assert unit("pitboss.service")["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    serving.forget()
    serving.process.tell(signal.SIGHUP)
    serving.until("RELOADING=1")
    serving.until("READY=1")
    assert serving.client.get("/readyz").status_code == 200


def test_the_autoscaler_gets_a_number(serving: Serving) -> None:
    client, as_worker = serving.client, {"X-API-Key": serving.worker_key}
    kind = {"name": "resize", "version": "1", "param_schema": {"type": "object"}}
    client.post("/api/task-types/register", json=kind, headers=as_worker).raise_for_status()
    made = [{"type": "resize", "params": {"number": number}} for number in range(25)]
    client.post("/api/tasks/bulk", json={"tasks": made}, headers=as_worker).raise_for_status()
    asked = urlsplit(TRIGGER["metadata"]["url"].replace("NAME", "resize"))
    path = f"{asked.path}?{asked.query}"
    assert client.get(path).status_code == 401
    answer = client.get(path, headers={TRIGGER["metadata"]["keyParamName"]: serving.viewer_key})
    assert answer.status_code == 200
    value = answer.json()
    for name in TRIGGER["metadata"]["valueLocation"].split("."):
        value = value[name]
    assert value == 3  # 25 tasks, ten for each worker


def test_the_paths_are_in_the_document_of_the_api(serving: Serving) -> None:
    document = serving.client.get("/openapi.json").json()
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert "get" in document["paths"]["/api" + SERVER[probe]["httpGet"]["path"]]
    asked = urlsplit(TRIGGER["metadata"]["url"])
    operation = document["paths"][asked.path.replace("NAME", "{name}")]["get"]
    known = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
    assert {part.partition("=")[0] for part in asked.query.split("&")} <= known
    shape: dict[str, Any] = operation["responses"]["200"]["content"]["application/json"]["schema"]
    for name in TRIGGER["metadata"]["valueLocation"].split("."):
        shape = resolved(document, resolved(document, shape)["properties"][name])
    assert shape["type"] == "integer"
    schemes = document["components"]["securitySchemes"].values()
    assert {"type": "apiKey", "in": "header", "name": TRIGGER["metadata"]["keyParamName"]} in schemes


def resolved(document: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, where the document has a reference to it, or says that it may also be null."""
    if "$ref" in shape:
        return resolved(document, document["components"]["schemas"][shape["$ref"].rpartition("/")[2]])
    choices = [one for one in shape.get("anyOf", ()) if one != {"type": "null"}]
    return resolved(document, choices[0]) if len(choices) == 1 else shape


def test_without_a_key_the_image_does_not_start_and_says_how_to_make_one(tmp_path: Path) -> None:
    asked = [str(PITBOSS), *image_command()]
    done = subprocess.run(asked, cwd=tmp_path, env=clean(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "pitboss keys create" in done.stderr


def test_the_page_uses_options_that_exist() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    for name, rest in re.findall(r"(?<![\w/-])pitboss (serve|keys create|keys revoke|status)((?: [^\s`]+)*)", page):
        text = pitboss(*name.split(), "--help").out
        assert [option for option in re.findall(r"--[\w-]+", rest) if option not in text] == []
