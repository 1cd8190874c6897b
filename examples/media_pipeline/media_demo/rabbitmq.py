"""A RabbitMQ for one run: Debian's package, started as the current user, on loopback and in a temporary folder."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_LOOK = 0.05
# The first bytes of the protocol; the server answers them once it takes connections.
_PROTOCOL = b"AMQP\x00\x00\x09\x01"
_SETTINGS = "log.console = false\nlog.file.level = info\ndisk_free_limit.absolute = 50MB\n"


class NoServer(Exception):
    """RabbitMQ is not installed, or does not start."""


class Server:
    """Starting takes seconds, so that `url` waits for it: there is time for other work before."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process, self._port, self._log = process, port, log

    def url(self) -> str:
        """The address, once the server takes connections there."""
        ends = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < ends:
            if _answers(self._port):
                return f"amqp://guest:guest@127.0.0.1:{self._port}/"
            time.sleep(_LOOK)
        raise NoServer(f"RabbitMQ does not start: {self._log} says why")


@contextmanager
def serving(log: Path) -> Iterator[Server]:
    """Run a server until the end of the block, then end it and remove its data."""
    server, names = _programs()
    ports = _free_ports()
    with tempfile.TemporaryDirectory(prefix="media-rabbitmq-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        (home / "rabbitmq.conf").write_text(_SETTINGS)
        (home / "enabled_plugins").write_text("[].\n")
        cookie = home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        environment = {**os.environ, **_variables(home, ports, log)}
        # Erlang would start a name server in the background, which outlives RabbitMQ.
        names_command = [names, "-port", str(ports.names), "-address", "127.0.0.1"]
        with (
            log.open("ab") as output,
            _child(names_command, environment, output),
            _child([server], environment, output) as process,
        ):
            yield Server(process, ports.clients, log)


class _Ports(NamedTuple):
    clients: int
    node: int
    names: int


def _variables(home: Path, ports: _Ports, log: Path) -> dict[str, str]:
    """Nothing is read from, or written to, the places of a RabbitMQ that the system may have."""
    return {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(ports.names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"media{ports.clients}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(ports.clients),
        "RABBITMQ_DIST_PORT": str(ports.node),
        "RABBITMQ_BASE": str(home),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_LOGS": str(log),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        # Its threads do not spin while they wait.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        # The script becomes the server, which then gets our signals itself.
        "RUNNING_UNDER_SYSTEMD": "true",
    }


def _programs() -> tuple[str, str]:
    """The server's own script, because Debian's command changes to another user; and Erlang's name server."""
    folders = (Path("/usr/lib/rabbitmq/bin"), Path(shutil.which("rabbitmq-server") or "/").resolve().parent)
    script = next((folder for folder in folders if (folder / "rabbitmq-env").exists()), None)
    names = shutil.which("epmd") or shutil.which("epmd", path="/usr/lib/erlang/bin")
    if script is None or names is None:
        raise NoServer("RabbitMQ is not installed: apt-get install rabbitmq-server, or leave it out with --no-broker")
    return str(script / "rabbitmq-server"), names


@contextmanager
def _child(command: list[str], environment: dict[str, str], output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block. If this program is killed, the kernel ends it."""
    # The signal is asked for by the new process itself; a parent that was killed before that sends none.
    still_wanted = f'[ "$PPID" = {os.getpid()} ] && exec "$@"'
    leash = ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", still_wanted, "sh"]
    process = subprocess.Popen(
        [*leash, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
        # Its helpers, and itself if it did not stop.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
        probe.sendall(_PROTOCOL)
        return bool(probe.recv(1))
    return False


def _free_ports() -> _Ports:
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in _Ports._fields]
    ports = _Ports(*(int(one.getsockname()[1]) for one in opened))
    for one in opened:
        one.close()
    return ports
