"""Errors of real HTTP libraries, met through a proxy that misbehaves: which of them are certainly its fault."""

import asyncio
import socket
import urllib.request
from collections.abc import Callable, Iterator

import aiohttp
import httpx
import pytest
import requests

from pitboss.model.blame import blame
from pitboss.model.duration import SECOND
from pitboss.model.resource import Report, ResourceOutcome
from tests.servers.proxy import StandIn, page, refused_port, stall, truncated

NOW = 1_800_000_000 * SECOND
SITE, SECURE = "http://site.example/page", "https://site.example/page"
LATE = 0.3
Fetch = Callable[[str, str], None]


def by_httpx(url: str, proxy: str) -> None:
    with httpx.Client(proxy=proxy, timeout=LATE, trust_env=False) as client:
        client.get(url).raise_for_status()


def by_httpx_async(url: str, proxy: str) -> None:
    async def work() -> None:
        async with httpx.AsyncClient(proxy=proxy, timeout=LATE, trust_env=False) as client:
            (await client.get(url)).raise_for_status()

    asyncio.run(work())


def by_requests(url: str, proxy: str) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.get(url, proxies={"http": proxy, "https": proxy}, timeout=LATE).raise_for_status()


def by_urllib(url: str, proxy: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    with opener.open(url, timeout=LATE) as answer:
        answer.read()


def by_aiohttp(url: str, proxy: str) -> None:
    async def work() -> None:
        limit = aiohttp.ClientTimeout(sock_connect=LATE, sock_read=LATE)
        async with aiohttp.ClientSession(timeout=limit) as session, session.get(url, proxy=proxy) as answer:
            answer.raise_for_status()
            await answer.read()

    asyncio.run(work())


LIBRARIES = [by_httpx, by_httpx_async, by_requests, by_urllib, by_aiohttp]


def report(fetch: Fetch, url: str, proxy: str) -> Report:
    try:
        fetch(url, proxy)
    except Exception as error:
        return blame(error, NOW, has_address=True)
    raise AssertionError("nothing was raised")


@pytest.fixture
def proxy() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


@pytest.mark.parametrize("fetch", LIBRARIES)
@pytest.mark.parametrize(
    "answer", [None, b"?? this is no answer\r\n\r\n", truncated(), page(status=502), page(status=500)]
)
def test_a_failure_that_the_site_can_cause_too_is_left_to_the_comparison(
    proxy: StandIn, fetch: Fetch, answer: bytes | None
) -> None:
    proxy.answer = lambda request: answer
    assert report(fetch, SITE, proxy.url).outcome is ResourceOutcome.TASK_ERROR


@pytest.mark.parametrize("fetch", LIBRARIES)
def test_so_is_a_read_that_takes_too_long(proxy: StandIn, fetch: Fetch) -> None:
    proxy.answer = stall(proxy)
    assert report(fetch, SITE, proxy.url).outcome is ResourceOutcome.TASK_ERROR


@pytest.mark.parametrize("fetch", LIBRARIES)
def test_so_is_a_tunnel_that_is_closed_when_it_is_open(fetch: Fetch) -> None:
    with StandIn(lambda request: None, tunnels=True) as proxy:
        # The hello of TLS is no request: the stand-in closes.
        assert report(fetch, SECURE, proxy.url).outcome is ResourceOutcome.TASK_ERROR


@pytest.mark.parametrize("fetch", LIBRARIES)
@pytest.mark.parametrize("url", [SITE, SECURE])
def test_a_proxy_that_cannot_be_reached_is_at_fault(fetch: Fetch, url: str) -> None:
    assert report(fetch, url, f"http://127.0.0.1:{refused_port()}").outcome is ResourceOutcome.RESOURCE_ERROR


@pytest.mark.parametrize("fetch", LIBRARIES)
@pytest.mark.parametrize("url", [SITE, SECURE])
def test_a_proxy_that_refuses_its_password_is_at_fault(proxy: StandIn, fetch: Fetch, url: str) -> None:
    proxy.answer = lambda request: page(status=407)
    assert report(fetch, url, proxy.url).outcome is ResourceOutcome.RESOURCE_ERROR


@pytest.mark.parametrize("fetch", [by_httpx, by_httpx_async, by_requests])
def test_the_report_names_the_site(proxy: StandIn, fetch: Fetch) -> None:
    proxy.answer = lambda request: None
    assert report(fetch, SITE, proxy.url).destination == "site.example"


@pytest.mark.parametrize("fetch", LIBRARIES)
def test_a_rate_limit_is_read_from_the_error(proxy: StandIn, fetch: Fetch) -> None:
    proxy.answer = lambda request: page(status=503, headers={"Retry-After": "9"})
    found = report(fetch, SITE, proxy.url)
    assert (found.outcome, found.retry_after, found.destination) == (
        ResourceOutcome.RATE_LIMITED,
        9 * SECOND,
        "site.example",
    )


def test_a_proxy_whose_queue_is_full_is_at_fault() -> None:
    """Nothing accepts: the connection itself takes too long."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        with socket.create_connection(listener.getsockname()):
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            for fetch in LIBRARIES:
                assert report(fetch, SITE, url).outcome is ResourceOutcome.RESOURCE_ERROR, fetch.__name__
