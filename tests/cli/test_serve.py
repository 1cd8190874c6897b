"""`pitboss serve`, and the HTTP API of `pitboss up`: real processes on a real file."""

import re
import signal
import socket
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pitboss.cli.errors import Exit
from pitboss.engines.protocol import Store
from pitboss.model.duration import SECOND
from pitboss.model.queue import HandlerInfo
from pitboss.model.session import ClaimRequest, SessionInfo, Slot
from pitboss.model.states import State
from tests.cli.command_line import Process, new, pitboss, put, with_store
from tests.cli.test_systemd import Listener
from tests.cli.test_up import enqueue, write_app

ON = {"PITBOSS_HTTP__ENABLED": "true"}
ECHO = HandlerInfo(name="echo", queue="echo", remote=True)


def address(process: Process, *, times: int = 1) -> str:
    """Where its newest server listens."""
    process.until("the HTTP API is at ", times=times)
    return re.findall(r"the HTTP API is at (\S+)", process.said)[-1]


def health(url: str) -> int:
    with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
        return int(answer.status)


def published(state: str) -> dict[str, Any]:
    """The only manager, once it tells that its server is in this state: at most a second later."""
    limit = time.monotonic() + 30
    while True:
        (found,) = pitboss("ps", "--json").json()["managers"]
        if found["http"] is not None and found["http"]["state"] == state:
            return dict(found)
        assert time.monotonic() < limit, found


def ended(process: Process) -> str:
    """Stop it; the last line that it printed."""
    process.tell(signal.SIGTERM)
    assert process.ended() == 0, process.said
    return process.said.splitlines()[-1]


def test_it_serves_the_api_without_an_app_and_drains(folder: Path) -> None:
    with Process("serve", "--port", "0", cwd=folder) as process:
        url = address(process)
        assert health(url) == 200
        assert "http     a free port of 127.0.0.1, which is shown below" in process.said
        one = published("running")
        assert (one["http"]["url"], one["workers"], one["app"]) == (url, [], "")
        status = pitboss("status", "--check", "--json")
        assert (status.code, status.json()["cause"]) == (0, "healthy")
        shown = pitboss("ps").out
        assert url in shown.partition("HTTP servers")[2]
        assert url in pitboss("status").out
        checks = {check["check"]: check["grade"] for check in pitboss("doctor", "--json").json()["checks"]}
        assert checks["http"] == "ok"
        assert "workers" not in checks
        last = ended(process)
    assert last.startswith("stopped after ")
    assert "done" not in last
    with pytest.raises(OSError, match="refused"):
        health(url)


def test_it_looks_after_the_store(folder: Path) -> None:
    put(new("echo", "{}", queue="echo"), handlers=(ECHO,))

    async def claim(store: Store) -> str:
        session = await store.open_session(SessionInfo(host="box9", kind="http"))
        slot = Slot(free=1, queues=("echo",), handlers=("echo",), lasts=SECOND, worker="w1")
        return (await store.claim(ClaimRequest(session=session.number, slots=(slot,)))).claims[0].id

    task = with_store(claim)
    with Process("serve", "--port", "0", "--quiet", cwd=folder) as process:
        address(process)
        found = pitboss("tasks", "show", task, "--json").json()
        limit = time.monotonic() + 30
        while found["task"]["state"] != State.PENDING and time.monotonic() < limit:
            found = pitboss("tasks", "show", task, "--json").json()
        assert (found["task"]["state"], found["task"]["losses"]) == ("pending", 1)
        assert found["cause"] in ("no-remote-worker", "ready")
        assert "it waits for a remote worker to claim it over HTTP" in found["why"]
        ended(process)


def test_servers_and_remote_workers_are_no_managers() -> None:
    put(new())

    async def open_both(store: Store) -> None:
        for kind in ("http", "remote"):
            await store.open_session(SessionInfo(host="box9", kind=kind))

    with_store(open_both)
    document = pitboss("status", "--json").json()
    assert (document["cause"], document["managers"]) == ("no-manager", [])
    assert "box9" not in pitboss("status").out
    assert "no manager is running" in pitboss("ps", "--all").err
    late = pitboss("tasks", "enqueue", "greet", '{"name": "you"}', "--wait", "--timeout", "10ms")
    assert "note: no manager is running on this store" in late.err


@pytest.mark.parametrize("command", [["serve"], ["up", "app.py"]], ids=["serve", "up"])
def test_other_machines_are_let_in_only_with_a_key(folder: Path, command: list[str]) -> None:
    write_app(folder)
    args = [*command, "--host", "0.0.0.0", "--port", "0"]
    refused = pitboss(*args, env=ON)
    assert refused.code == Exit.REFUSED
    assert "the HTTP API cannot listen on 0.0.0.0:0" in refused.err
    assert "fix: create a key first: pitboss keys create NAME --role admin" in refused.err
    assert pitboss("keys", "create", "ops", "--role", "admin").code == 0
    with Process(*args, cwd=folder, env=ON) as process:
        address(process)
        ended(process)


def test_it_is_a_service_of_systemd(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="pb-") as place:
        listener = Listener(f"{place}/notify")
        told = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "400000"}
        with Process("serve", "--port", "0", cwd=folder, env=told) as process:
            listener.until("READY=1")
            listener.until("WATCHDOG=1", times=2)
            process.tell(signal.SIGTERM)
            listener.until("STOPPING=1")
            assert process.ended() == 0
        listener.close()


def test_a_store_in_memory_cannot_be_served(folder: Path) -> None:
    answer = pitboss("serve", "--store", "memory://")
    assert answer.code == Exit.USAGE
    assert "memory:// cannot be served" in answer.err


@pytest.mark.parametrize("option", ["--tls-cert", "--tls-key"])
def test_a_certificate_needs_its_key(option: str) -> None:
    answer = pitboss("serve", option, "x.pem")
    assert answer.code == Exit.USAGE
    assert f"command line ({option})" in answer.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--port", "8123", "--no-http"], None),
        (["--store", "memory://"], None),
        (["--store", "memory://", "--port", "8123"], "none: a store in memory cannot be served"),
    ],
    ids=["not wanted", "in memory", "asked for in memory"],
)
def test_up_without_the_api(folder: Path, args: list[str], said: str | None) -> None:
    write_app(folder)
    env = {"PITBOSS_HTTP__ENABLED": ""}
    with Process("up", "app.py", "--workers", "1", *args, cwd=folder, env=env) as process:
        process.until("is ready")
        ended(process)
        rows = [line for line in process.said.splitlines() if line.startswith("  http ")]
        assert len(rows) == (said is not None)
        assert said is None or said in rows[0]
        assert "the HTTP API is at" not in process.said


def test_up_serves_the_api_beside_its_workers(folder: Path) -> None:
    write_app(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Process("up", "app.py", "--workers", "1", "--port", str(port), cwd=folder, env=ON) as process:
        url = address(process)
        assert url == f"http://127.0.0.1:{port}"
        assert f"  http     {url}/ui (API at /api, docs at /docs)" in process.said
        assert health(url) == 200
        assert enqueue("quick", "--wait", "--timeout", "30s") == '"hello you"'
        assert published("running")["http"]["url"] == url
        ended(process)


def test_a_taken_port_leaves_the_workers_at_work(folder: Path) -> None:
    write_app(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with Process("up", "app.py", "--workers", "1", "--port", port, cwd=folder, env=ON) as process:
            process.until("the HTTP server stays down")
            assert "--no-http" in process.said
            assert enqueue("quick", "--wait", "--timeout", "30s") == '"hello you"'
            assert "cannot start" in published("crashed")["http"]["why"]
            (found,) = [one for one in pitboss("doctor", "--json").json()["checks"] if one["check"] == "http"]
            assert (found["grade"], "cannot start" in found["why"]) == ("warning", True)
            ended(process)


def test_new_settings_replace_the_server_and_bad_ones_do_not(folder: Path) -> None:
    settings = folder / "pitboss.toml"
    settings.write_text("[http]\nport = 0\n")
    with Process("serve", cwd=folder) as process:
        url = address(process)
        settings.write_text('[http]\nport = 0\nhost = "0.0.0.0"\n')
        process.tell(signal.SIGHUP)
        process.until("the HTTP API cannot listen on 0.0.0.0:0")
        assert health(url) == 200
        settings.write_text("[http]\nport = 0\n")
        process.tell(signal.SIGHUP)
        process.until("settings were reloaded")
        assert health(url) == 200
        settings.write_text('[http]\nport = 0\nmax_body = "4KB"\n')
        process.tell(signal.SIGHUP)
        other = address(process, times=2)
        assert (other != url, health(other)) == (True, 200)
        ended(process)
        assert process.said.count("the HTTP API is at ") == 2


def test_it_ends_with_an_error_if_its_port_is_taken(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Process("serve", "--port", str(taken.getsockname()[1]), cwd=tmp_path, env=ON) as process,
    ):
        assert process.ended() == Exit.FAILED
    assert "the HTTP API cannot be served" in process.said
    assert "Address already in use" in process.said
