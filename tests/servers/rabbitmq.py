"""A real RabbitMQ server of our own: free ports, a temporary folder, its own node name, cookie and name server (epmd).

It can be stopped, killed and started again on the same data, and be made to refuse work as a real one does.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil

from tests.servers.postgres import ServerError, free_port

START_SECONDS = 90.0
STOP_SECONDS = 60.0
CALL_SECONDS = 30.0
_CONNECT_TRIES = 20
# The first bytes of the protocol; the server answers them once it takes connections.
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
# One scheduler per core that does not spin while idle: the tests share a small machine.
ERLANG_ARGUMENTS = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none"
SETTINGS = {
    "loopback_users": "none",
    "log.console": "false",
    "log.file.level": "info",
    # The suite's folder may be in memory, on a machine with little of it.
    "disk_free_limit.absolute": "50MB",
}


def find_scripts() -> Path:
    """The folder of the server's own scripts. Debian's command in /usr/sbin would change to another user."""
    for folder in (Path("/usr/lib/rabbitmq/bin"), Path(shutil.which("rabbitmq-server") or "/").resolve().parent):
        if (folder / "rabbitmq-env").exists():
            return folder
    raise ServerError("no RabbitMQ server found (rabbitmq-server); `make rabbitmq` installs it")


def find_erlang(program: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/lib/erlang/bin")
    if found is None:
        raise ServerError(f"no {program} found; it comes with Erlang, which `make rabbitmq` installs")
    return found


class RabbitServer:
    """`settings` are further lines of rabbitmq.conf."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._scripts = find_scripts()
        self._folder = Path(tempfile.mkdtemp(prefix="pitboss-rabbit-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._names: subprocess.Popen[bytes] | None = None
        self._made = 0
        self.port, self._names_port, self._node_port = free_port(), free_port(), free_port()
        self._node = f"pitboss{self.port}@localhost"
        self._cookie = f"pitboss{os.urandom(12).hex()}"
        self._write_settings({**SETTINGS, **(settings or {})})

    def __enter__(self) -> Self:
        try:
            self._start_name_server()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self, vhost: str = "/", user: str = "guest", password: str | None = None, port: int | None = None) -> str:
        """Users that `make_user` made have their name as password. `port` is that of a relay."""
        known = f"{quote(user, safe='')}:{quote(password or user, safe='')}"
        return f"amqp://{known}@127.0.0.1:{port or self.port}/{quote(vhost, safe='')}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Start the server on the data that it has, and return once it takes connections."""
        if self._process is not None:
            raise ServerError("the server is already running")
        self._process = self._spawn([str(self._scripts / "rabbitmq-server")])
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.kill9()
            raise

    def stop(self) -> None:
        """In good order: clients are told that the server shuts down."""
        process = self._running()
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ServerError(f"the server did not stop:\n{self._log_tail()}") from error
        self._process = None

    def kill9(self) -> None:
        """End the server and its children without warning, as a crash of the machine would."""
        process = self._running()
        if process.poll() is None:
            family = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        process.wait(STOP_SECONDS)
        self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """The server answers nothing, while its connections stay open, until `thaw`."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End everything and remove the folder; harmless to repeat."""
        if self._process is not None:
            self.kill9()
        if self._names is not None:
            self._names.kill()
            self._names.wait(STOP_SECONDS)
            self._names = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def ctl(self, *arguments: str) -> str:
        """What rabbitmqctl prints. It takes about a second to start; `evaluate` takes milliseconds."""
        return self._call([str(self._scripts / "rabbitmqctl"), "--quiet", "--node", self._node, *arguments])

    def evaluate(self, erlang: str) -> str:
        """The value of an Erlang expression, computed in the server."""
        failed = 'lists:flatten(io_lib:format("~p", [{C, E}]))'
        guarded = f"try {{ok, begin {erlang} end}} catch C:E -> {{failed, {failed}}} end."
        command = [find_erlang("erl_call"), "-sname", self._node, "-c", self._cookie, "-timeout", "20", "-e"]
        answer = self._called_again(command, f"{guarded}\n")
        # erl_call puts its own {ok, …} around the value.
        inner = answer.removeprefix("{ok, ").removesuffix("}")
        if not inner.startswith("{ok,"):
            raise ServerError(f"{erlang}: {answer}")
        return inner.removeprefix("{ok,").removesuffix("}").strip()

    def make_vhost(self, name: str | None = None) -> str:
        """A new virtual host, which the user guest may use; returns its name."""
        self._made += 1
        name = name or f"test{self._made}"
        self.evaluate(f'rabbit_vhost:add({_binary(name)}, <<"tests">>)')
        self.permit("guest", name)
        return name

    def delete_vhost(self, name: str) -> None:
        self.evaluate(f'rabbit_vhost:delete({_binary(name)}, <<"tests">>)')

    def make_user(self, name: str) -> str:
        """A new user with its name as password, who may do nothing yet."""
        self.evaluate(f'rabbit_auth_backend_internal:add_user({_binary(name)}, {_binary(name)}, <<"tests">>)')
        return name

    def delete_user(self, name: str) -> None:
        self.evaluate(f'rabbit_auth_backend_internal:delete_user({_binary(name)}, <<"tests">>)')

    def permit(self, user: str, vhost: str, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        """Patterns of the queues and exchanges that the user may make, write to and read from."""
        rights = ", ".join(_binary(value) for value in (user, vhost, configure, write, read))
        self.evaluate(f'rabbit_auth_backend_internal:set_permissions({rights}, <<"tests">>)')

    def raise_alarm(self) -> None:
        """The server takes no messages, as if its memory were full."""
        self.evaluate("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})")

    def clear_alarm(self) -> None:
        self.evaluate("rabbit_alarm:clear_alarm({resource_limit, memory, node()})")

    def delete_queue(self, vhost: str, queue: str) -> None:
        name = f"rabbit_misc:r({_binary(vhost)}, queue, {_binary(queue)})"
        self.evaluate(f'{{ok, Q}} = rabbit_amqqueue:lookup({name}), rabbit_amqqueue:delete(Q, false, false, <<"t">>)')

    def close_connections(self, why: str = "closed by an operator") -> None:
        self.evaluate(f'rabbit_networking:close_connections(rabbit_networking:connections(), "{why}")')

    def connection_names(self) -> set[str]:
        """The names that clients gave their connections."""
        lines = self.ctl("list_connections", "client_properties").splitlines()
        return {line.partition('"connection_name","')[2].partition('"')[0] for line in lines} - {""}

    def set_consumer_timeout(self, milliseconds: int) -> None:
        """For channels that are opened from now on. It is looked at each minute, unless `tick_channels` is called."""
        self.evaluate(f"application:set_env(rabbit, consumer_timeout, {milliseconds})")

    def tick_channels(self) -> None:
        """Let all channels look now for acknowledgements that are late."""
        self.evaluate("[Pid ! tick || Pid <- rabbit_channel:list()]")

    def _write_settings(self, settings: Mapping[str, str]) -> None:
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        (self._folder / "rabbitmq.conf").write_text("".join(lines), encoding="utf-8")
        (self._folder / "enabled_plugins").write_text("[].\n", encoding="utf-8")
        cookie = self._folder / ".erlang.cookie"
        cookie.write_text(self._cookie, encoding="utf-8")
        cookie.chmod(0o400)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self._folder),
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_BASE": str(self._folder),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG_ARGUMENTS,
            # The script becomes the server, which then gets our signals itself.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _start_name_server(self) -> None:
        # Erlang would start one in the background, which outlives the server.
        self._names = self._spawn([find_erlang("epmd"), "-port", str(self._names_port), "-address", "127.0.0.1"])

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        # A test run that is killed must not leave a server behind: the kernel tells it when its parent dies.
        leash = ["setpriv", "--pdeathsig", "KILL", "--"]
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(
                [*leash, *command],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output.fileno(),
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment(),
            )

    def _called_again(self, command: list[str], stdin: str) -> str:
        """erl_call cannot connect while another one is connecting under the same hidden name."""
        for _ in range(_CONNECT_TRIES):
            try:
                return self._call(command, stdin)
            except ServerError as error:
                if "failed to connect" not in str(error):
                    raise
                time.sleep(0.1)
        return self._call(command, stdin)

    def _call(self, command: list[str], stdin: str = "") -> str:
        environment = self._environment()
        called = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=CALL_SECONDS, env=environment, check=False
        )
        if called.returncode != 0:
            raise ServerError(f"{command[0]} ended with {called.returncode}:\n{called.stdout}{called.stderr}")
        return called.stdout.strip()

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=2) as probe:
                    probe.sendall(PROTOCOL_HEADER)
                    if probe.recv(1):
                        return
            except OSError:
                time.sleep(0.05)
        raise ServerError(f"the server did not come up on port {self.port}:\n{self._log_tail()}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("the server is not running")
        return self._process

    def _log_tail(self) -> str:
        logs = [self._folder / "output", *sorted((self._folder / "log").glob("*.log"))]
        lines = [line for log in logs for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
        return "\n".join(lines[-30:])


def _binary(text: str) -> str:
    """Text as an Erlang binary, whatever its letters."""
    return f"<<{','.join(str(byte) for byte in text.encode())}>>"
