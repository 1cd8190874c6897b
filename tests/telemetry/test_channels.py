"""Channels of alerts against servers on this machine: what they send, what they refuse, and that nothing hangs."""

import asyncio
import hmac
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from pitboss.model.alert import Severity
from pitboss.model.alert_message import AlertLine, AlertMessage, ChannelSpec, Kind
from pitboss.model.duration import SECOND
from pitboss.telemetry.channels import SendError, send
from pitboss.telemetry.channels.webhook import is_public

NOW = 1_800_000_000 * SECOND
LINE = AlertLine(rule="disk", condition="disk", severity=Severity.HIGH, firing=True, about="<1 GB> left", since=NOW)
MESSAGE = AlertMessage(kind=Kind.ALERT, at=NOW, number=1, lines=(LINE,), store="sqlite:///jobs.db")


class Request(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """Answers each request as `answer` says; an answer of None hangs."""

    def __init__(self, answer: Callable[[Request], bytes | None]) -> None:
        self.answer, self.requests = answer, list[Request]()
        self.port = 0
        self.ended = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(first.split()[1], headers, body)
        self.requests.append(request)
        answer = self.answer(request)
        if answer is None:
            await self.ended.wait()
        else:
            writer.write(answer)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(answer: Callable[[Request], bytes | None]) -> AsyncIterator[Server]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        server.ended.set()
        listening.close()


def status(code: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} Said", "Content-Length: 0", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def webhook(url: str, **fields: Any) -> ChannelSpec:
    return ChannelSpec(name="ops", type="webhook", url=url, **{"allow_private": True, "timeout": 5 * SECOND} | fields)


async def test_a_webhook_gets_the_message_with_a_signature() -> None:
    async with serving(lambda _: status(204)) as server:
        await send(webhook(server.url, secret="s3cret", headers={"X-Team": "ops"}), MESSAGE, NOW)
    (request,) = server.requests
    assert request.path == "/hook"
    assert request.headers["x-team"] == "ops"
    # As the documentation tells receivers to do it.
    given = dict(part.split("=", 1) for part in request.headers["x-pitboss-signature"].split(","))
    expected = hmac.new(b"s3cret", given["t"].encode() + b"." + request.body, sha256).hexdigest()
    assert hmac.compare_digest(given["v1"], expected)
    assert int(given["t"]) == 1_800_000_000
    said = json.loads(request.body)
    assert (said["kind"], said["title"], said["number"]) == ("alert", "Pitboss: disk", 1)
    assert said["alerts"] == [
        {
            "rule": "disk",
            "condition": "disk",
            "severity": "high",
            "state": "firing",
            "about": "<1 GB> left",
            "since": "2027-01-15T08:00:00+00:00",
            "more": 0,
            "fired_again": 0,
        }
    ]


async def test_slack_gets_its_own_form() -> None:
    async with serving(lambda _: status(200)) as server:
        await send(replace(webhook(server.url), type="slack"), MESSAGE, NOW)
    said = json.loads(server.requests[0].body)
    lines = [
        "*Pitboss: disk (sqlite:///jobs.db)*",
        ":red_circle: disk (high) firing: &lt;1 GB&gt; left",
        "message 1, 2027-01-15 08:00:00 UTC",
    ]
    assert said == {"text": "\n".join(lines)}


async def test_an_answer_that_is_no_success_is_an_error() -> None:
    async with serving(lambda _: status(500)) as server:
        with pytest.raises(SendError, match="the answer was 500"):
            await send(webhook(server.url), MESSAGE, NOW)


async def test_a_server_that_hangs_ends_with_the_time_limit() -> None:
    async with serving(lambda _: None) as server:
        with pytest.raises(SendError, match="no answer within 200ms"):
            await send(webhook(server.url, timeout=SECOND // 5), MESSAGE, NOW)


async def test_nothing_listens_is_an_error_without_the_url() -> None:
    async with serving(lambda _: None) as server:
        url = f"http://127.0.0.1:{server.port}/secret-token"
    with pytest.raises(SendError, match=r"127\.0\.0\.1 cannot be reached") as error:
        await send(webhook(url), MESSAGE, NOW)
    assert "secret-token" not in str(error.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "2130706433", "[::ffff:10.0.0.1]"])
async def test_a_private_address_is_refused_before_anything_is_connected(host: str) -> None:
    async with serving(lambda _: status(200)) as server:
        with pytest.raises(SendError, match=r"which is not on the internet|cannot be looked up"):
            await send(webhook(f"http://{host}:{server.port}/", allow_private=False), MESSAGE, NOW)
    assert server.requests == []


@pytest.mark.parametrize("addresses", [("127.0.0.2", "127.0.0.1"), ("127.0.0.3", "127.0.0.1", "127.0.0.2")])
async def test_the_next_allowed_address_is_tried_if_one_cannot_be_connected(
    addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def looked_up(*_: object, **__: object) -> list[Any]:
        return [(2, 1, 6, "", (one, 0)) for one in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up)
    # Nothing listens on 127.0.0.2, and 127.0.0.3 is not allowed.
    monkeypatch.setattr("pitboss.telemetry.channels.webhook.is_public", lambda one: str(one) != "127.0.0.3")
    async with serving(lambda _: status(200)) as server:
        await send(webhook(f"http://hooks.example:{server.port}/", allow_private=False), MESSAGE, NOW)
    assert [one.headers["host"] for one in server.requests] == [f"hooks.example:{server.port}"]


async def test_a_redirect_is_followed_with_the_same_message() -> None:
    def answer(request: Request) -> bytes:
        return status(307, "Location: /new") if request.path == "/hook" else status(200)

    async with serving(answer) as server:
        await send(webhook(server.url, secret="s"), MESSAGE, NOW)
    first, second = server.requests
    assert (second.path, second.body) == ("/new", first.body)
    assert second.headers["x-pitboss-signature"] == first.headers["x-pitboss-signature"]


async def test_endless_redirects_end() -> None:
    async with serving(lambda _: status(302, "Location: /hook")) as server:
        with pytest.raises(SendError, match="redirects more than 3 times"):
            await send(webhook(server.url), MESSAGE, NOW)
    assert len(server.requests) == 4


async def test_each_redirect_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first address counts as public; where it leads does not."""
    async with (
        serving(lambda _: status(200)) as inner,
        serving(lambda _: status(307, f"Location: http://127.0.0.2:{inner.port}/admin")) as server,
    ):
        monkeypatch.setattr("pitboss.telemetry.channels.webhook.is_public", lambda one: str(one) == "127.0.0.1")
        with pytest.raises(SendError, match=r"127\.0\.0\.2, which is not on the internet"):
            await send(webhook(server.url, allow_private=False), MESSAGE, NOW)
    assert len(server.requests) == 1
    assert inner.requests == []


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1"),
        *("255.255.255.255", "100.64.0.1", "::1", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "::"),
    ],
)
def test_addresses_that_are_not_on_the_internet(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_addresses_of_the_internet(address: str) -> None:
    assert is_public(ip_address(address))


class MailServer:
    """A few lines of SMTP: keeps what it is given, or refuses it."""

    def __init__(self, refuse: str = "") -> None:
        self.lines, self.mail, self._refuse = list[str](), "", refuse

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).decode().strip():
            self.lines.append(line)
            verb = line.split(" ", 1)[0].upper()
            if verb == self._refuse:
                writer.write(b"550 no\r\n")
            elif verb == "EHLO":
                writer.write(b"250-here\r\n250 AUTH PLAIN\r\n")
            elif verb == "AUTH":
                writer.write(b"235 ok\r\n")
            elif verb == "DATA":
                writer.write(b"354 go\r\n")
                self.mail = (await reader.readuntil(b"\r\n.\r\n")).decode()
                writer.write(b"250 ok\r\n")
            else:
                writer.write(b"221 bye\r\n" if verb == "QUIT" else b"250 ok\r\n")
            if verb == "QUIT":
                break
        writer.close()


class DrippingServer:
    """Answers byte by byte, so that no read takes long, and never ends a line."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self.full, self._ended = asyncio.Event(), asyncio.Event()

    async def serve(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._left -= 1
        if not self._left:
            self.full.set()
        with suppress(ConnectionError):
            while not self._ended.is_set():
                writer.write(b"2")
                await writer.drain()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self._ended.wait()
        writer.close()

    def end(self) -> None:
        self._ended.set()


def mail(port: int, **fields: Any) -> ChannelSpec:
    return ChannelSpec(
        name="mail",
        type="email",
        host="127.0.0.1",
        port=port,
        security="none",
        sender="pitboss@example.org",
        to=("ops@example.org", "ann@example.org"),
        **{"timeout": 5 * SECOND} | fields,
    )


@asynccontextmanager
async def mailing(server: MailServer | DrippingServer) -> AsyncIterator[int]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def test_an_email_goes_to_everyone() -> None:
    server = MailServer()
    async with mailing(server) as port:
        await send(mail(port, user="bob", password="pw"), MESSAGE, NOW)
    assert "Subject: Pitboss: disk" in server.mail
    assert "disk (high) firing: <1 GB> left" in server.mail
    assert [line for line in server.lines if line.upper().startswith("RCPT")] == [
        "rcpt TO:<ops@example.org>",
        "rcpt TO:<ann@example.org>",
    ]
    assert any(line.upper().startswith("AUTH PLAIN") for line in server.lines)


@pytest.mark.parametrize(("refuse", "said"), [("AUTH", "answered 550"), ("DATA", "answered 550"), ("RCPT", "refused")])
async def test_an_email_that_is_refused_is_an_error(refuse: str, said: str) -> None:
    server = MailServer(refuse)
    async with mailing(server) as port:
        with pytest.raises(SendError, match=said) as error:
            await send(mail(port, user="bob", password="pw"), MESSAGE, NOW)
    assert "pw" not in str(error.value)


async def test_an_email_needs_the_protection_that_is_asked_for() -> None:
    async with mailing(MailServer()) as port:
        with pytest.raises(SendError, match="STARTTLS"):
            await send(replace(mail(port), security="starttls"), MESSAGE, NOW)


async def test_a_mail_server_that_drips_delays_no_other_channel_and_leaves_no_thread() -> None:
    """Regression: mails filled the threads in which names are looked up, and their time limit was that of a read."""
    many = 40
    dripping = DrippingServer(many)
    async with mailing(dripping) as port, serving(lambda _: status(200)) as server:
        mails = [asyncio.create_task(send(mail(port, timeout=3 * SECOND), MESSAGE, NOW)) for _ in range(many)]
        await dripping.full.wait()
        threads = [one for one in threading.enumerate() if one.name.startswith("mail")]
        assert len(threads) == many
        await send(webhook(f"http://localhost:{server.port}/hook", timeout=SECOND), MESSAGE, NOW)
        assert len(server.requests) == 1
        ends = await asyncio.gather(*mails, return_exceptions=True)
        for one in threads:
            await asyncio.to_thread(one.join, 5)
        dripping.end()
    assert {str(one) for one in ends} == {"no answer within 3s"}
    assert not any(one.is_alive() for one in threads)
