"""Webhooks, and Slack's. A name is looked up once, its addresses are judged, and exactly these are connected, one after
the other: so neither a name nor a redirect can lead a message to a private address."""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpx

from pitboss.model.alert_message import SIGNATURE, AlertMessage, ChannelSpec, document, signature, slack_document
from pitboss.model.canonical import to_json
from pitboss.model.duration import SECOND, Moment
from pitboss.telemetry.channels.errors import SendError

_MOST_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 307, 308})
_PORTS = {"http": 80, "https": 443}
# IPv6 addresses that lead to the IPv4 address at their end.
_TRANSLATED = ip_network("64:ff9b::/96")
_LAST_32 = 0xFFFF_FFFF


async def post(channel: ChannelSpec, message: AlertMessage, now: Moment) -> None:
    """Post the message; `SendError` unless the answer is 2xx."""
    said = slack_document(message) if channel.type == "slack" else document(message)
    body = to_json(said).encode()
    headers = {**channel.headers, "Content-Type": "application/json", "User-Agent": "pitboss"}
    if channel.secret:
        headers[SIGNATURE] = signature(channel.secret, body, now // SECOND)
    url = _url(channel.url)
    # Proxies of the environment would look names up again, by themselves.
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=channel.timeout / SECOND) as client:
        for _ in range(_MOST_REDIRECTS + 1):
            status, location = await _ask(client, url, body, headers, channel)
            if status not in _REDIRECTS or not location:
                break
            after = _url(location, url)
            if after.host != url.host or (url.scheme == "https" and after.scheme != "https"):
                # What the headers say is for the first host.
                headers = {key: value for key, value in headers.items() if key not in channel.headers}
            if url.scheme == "https" and after.scheme != "https":
                raise SendError("it redirects from https to http")
            url = after
        else:
            raise SendError(f"it redirects more than {_MOST_REDIRECTS} times")
    if not httpx.codes.is_success(status):
        raise SendError(f"the answer was {status}")


def _url(text: str, base: httpx.URL | None = None) -> httpx.URL:
    try:
        return httpx.URL(text) if base is None else base.join(text)
    except httpx.InvalidURL:
        raise SendError("it is, or redirects to, no usable address") from None


async def _ask(
    client: httpx.AsyncClient, url: httpx.URL, body: bytes, headers: dict[str, str], channel: ChannelSpec
) -> tuple[int, str | None]:
    """The status of the answer, and where it redirects to. The body of the answer is not read. What could not be
    connected has got nothing: only then the next address is tried."""
    if url.scheme not in _PORTS or not url.host:
        raise SendError("it is no http or https address")
    addresses = await _addresses(url, allow_private=channel.allow_private)
    shown = f"[{url.host}]" if ":" in url.host else url.host
    host = shown if url.port is None else f"{shown}:{url.port}"
    seconds, problem = channel.timeout / SECOND, SendError("")
    for address in addresses:
        asked = client.stream(
            "POST",
            url.copy_with(host=str(address), port=url.port or _PORTS[url.scheme]),
            content=body,
            headers={**headers, "Host": host},
            # The certificate must be that of the name, not of the address.
            extensions={"sni_hostname": url.host},
            timeout=httpx.Timeout(seconds, connect=seconds / len(addresses)),
        )
        try:
            async with asked as answer:
                return answer.status_code, answer.headers.get("location")
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            problem = _unreachable(url, error)
        except httpx.TimeoutException as error:
            raise TimeoutError from error
        except httpx.HTTPError as error:
            raise _unreachable(url, error) from error
    raise problem


def _unreachable(url: httpx.URL, error: httpx.HTTPError) -> SendError:
    return SendError(f"{url.host} cannot be reached: {type(error).__name__} {error}".rstrip())


async def _addresses(url: httpx.URL, *, allow_private: bool) -> list[IPv4Address | IPv6Address]:
    """Those that may be connected, at least one."""
    port = url.port or _PORTS[url.scheme]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SendError(f"the name {url.host} cannot be looked up: {error}") from error
    addresses = [ip_address(str(one[4][0]).partition("%")[0]) for one in found]
    if not addresses:
        raise SendError(f"the name {url.host} has no address")
    allowed = [one for one in addresses if allow_private or is_public(one)]
    if not allowed:
        raise SendError(
            f"{url.host} leads to {addresses[0]}, which is not on the internet; "
            "set allow_private = true in the channel if that is meant"
        )
    return list(dict.fromkeys(allowed))


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether it is an address of the internet: not private, loopback, link-local, multicast or reserved, also not by
    way of an IPv6 address that stands for an IPv4 one."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _TRANSLATED:
            inner = IPv4Address(int(address) & _LAST_32)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast
