"""API and dashboard mounted in an application that plain uvicorn serves."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

_APP = """
from contextlib import asynccontextmanager
from starlette.applications import Starlette
from starlette.routing import Mount
from pitboss import App

dashboard = App(store="sqlite:///jobs.db").web()

@asynccontextmanager
async def lifespan(_):
    yield
    await dashboard.aclose()
    print("closed", flush=True)

site = Starlette(routes=[Mount("/jobs", app=dashboard)], lifespan=lifespan)
"""


@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_uvicorn_stops_while_a_stream_is_open(tmp_path: Path, asked: signal.Signals) -> None:
    (tmp_path / "outer.py").write_text(_APP)
    create = [str(Path(sys.executable).with_name("pitboss")), "keys", "create", "ana", "--role", "viewer", "--store"]
    made = subprocess.run([*create, "sqlite:///jobs.db"], cwd=tmp_path, capture_output=True, text=True, check=True)
    key = next(word for word in made.stdout.split() if word.startswith("pbk_"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", "uvicorn", "outer:site", "--fd", str(listening.fileno())]
        process = subprocess.Popen(
            command, cwd=tmp_path, pass_fds=[listening.fileno()], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/jobs/ui/live"
            cookie = {"Cookie": f"pitboss_key={key}"}
            with httpx.stream("GET", url, headers=cookie, timeout=30, trust_env=False) as stream:
                lines = stream.iter_lines()
                assert any(line.startswith("data: ") for line in lines)
                process.send_signal(asked)
                began = time.monotonic()
                # The server ends the stream.
                assert not any(line.startswith("data: broken") for line in lines)
                said, _ = process.communicate(timeout=20)
            assert "closed" in said
            assert time.monotonic() - began < 10
        finally:
            process.kill()
            process.wait()
