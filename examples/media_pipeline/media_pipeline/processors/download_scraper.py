"""Finds the videos of a page and fetches them, as a good guest. The document's `downloadScraper`.

Every request takes a lease of its site, so that no site gets more than its limits allow, by all workers together.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx

from media_pipeline.files import name_of
from pitboss import Lease, Resources

AGENT = "MediaPipeline"
USER_AGENT = f"{AGENT}/1.0 (+https://example.org/media-pipeline)"
ENDINGS = (".mp4", ".m4v", ".mov", ".webm", ".mkv", ".avi", ".ts")
MOST_VIDEOS = 50
_MEGABYTE = 1024 * 1024
_MOST_PAGE = 5 * _MEGABYTE
_CHUNK = 64 * 1024
_SECONDS = 30.0
_USUAL_PAUSE = 60.0
_LONGEST_PAUSE = 3600.0
_FORBIDDEN, _TOO_MANY, _UNAVAILABLE, _SERVER_ERROR = (401, 403), 429, 503, 500


class Refused(Exception):
    """The site will not give it, or has nothing: trying again does not help."""


class TooManyRequests(Exception):
    """The site asks for a pause of that many seconds."""

    def __init__(self, site: str, seconds: float) -> None:
        super().__init__(f"{site} asked for a pause of {seconds:g} s")
        self.seconds = seconds


class Scraper:
    """Lives with its worker: it keeps what robots.txt of each site says."""

    def __init__(self, sites: Resources) -> None:
        self._sites = sites
        self._known = set[str]()
        self._rules = dict[str, RobotFileParser]()

    async def fetch_videos(self, link: str, folder: Path, most_bytes: int) -> list[Path]:
        """Fetch all videos of a page into the folder, except those that an earlier attempt has fetched."""
        paths = list[Path]()
        for number, url in enumerate(await self._videos(link), start=1):
            path = folder / f"{number:02d}-{name_of(url)}"
            if not await asyncio.to_thread(path.exists):
                await self._save(url, path, most_bytes)
            paths.append(path)
        return paths

    async def _videos(self, link: str) -> list[str]:
        async with self._asking(link) as answer:
            if answer.headers.get("Content-Type", "").startswith("video/"):
                return [link]
            page = await _limited(answer, _MOST_PAGE)
            finder = VideoFinder(str(answer.url))
        finder.feed(page.decode(answer.encoding or "utf-8", errors="replace"))
        allowed = [url for url in finder.found if await self._allowed(url)]
        if not allowed:
            raise Refused(f"there is no video on {link} that may be fetched")
        return allowed[:MOST_VIDEOS]

    async def _save(self, url: str, path: Path, most_bytes: int) -> None:
        """Under another name until it is complete. What a killed worker leaves is overwritten by the next attempt."""
        part = path.with_name(f"{path.name}.part")
        try:
            async with self._asking(url) as answer:
                await _write(answer, part, most_bytes)
            await asyncio.to_thread(part.replace, path)
        finally:
            part.unlink(missing_ok=True)

    @asynccontextmanager
    async def _asking(self, url: str) -> AsyncIterator[httpx.Response]:
        """The answer to a request that the site's robots.txt allows."""
        if not await self._allowed(url):
            raise Refused(f"robots.txt of {urlsplit(url).netloc} does not allow {url}")
        async with self._request(url) as answer:
            if answer.is_error:
                raise Refused(f"{answer.status_code} {answer.reason_phrase}: {url}")
            yield answer

    async def _allowed(self, url: str) -> bool:
        parts = urlsplit(url)
        rules = self._rules.get(parts.netloc)
        if rules is None:
            async with self._request(f"{parts.scheme}://{parts.netloc}/robots.txt") as answer:
                text = "" if answer.is_error else (await _limited(answer, _MOST_PAGE)).decode(errors="replace")
            rules = RobotFileParser()
            rules.parse(text.splitlines())
            self._rules[parts.netloc] = rules
        return rules.can_fetch(AGENT, url)

    @asynccontextmanager
    async def _request(self, url: str) -> AsyncIterator[httpx.Response]:
        """A request within the limits of its site. A pause that the site asks for, and its own errors, are raised."""
        site = urlsplit(url).netloc
        if site not in self._known:
            await self._sites.aadd(site, labels=[site])
            self._known.add(site)
        async with self._sites.lease(labels=[site]) as lease, _client(lease) as client, client.stream("GET", url) as it:
            if it.status_code == _TOO_MANY or (it.status_code == _UNAVAILABLE and "Retry-After" in it.headers):
                raise TooManyRequests(site, _pause(it))
            if it.status_code >= _SERVER_ERROR:
                it.raise_for_status()
            if it.status_code in _FORBIDDEN:
                # It is about this page. Without a word, the whole site would rest.
                lease.ok()
            yield it


def _client(lease: Lease) -> httpx.AsyncClient:
    return lease.http(headers={"User-Agent": USER_AGENT}, follow_redirects=True, timeout=_SECONDS)


class VideoFinder(HTMLParser):
    """Collects the addresses of videos: <video src>, <source src> within it, and links to files with such an ending."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base, self._in_video = base, False
        self.found = list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in_video = self._in_video or tag == "video"
        if tag == "video" or (tag == "source" and self._in_video):
            self._add(given.get("src"))
        elif tag == "a" and urlsplit(given.get("href") or "").path.lower().endswith(ENDINGS):
            self._add(given["href"])

    def handle_endtag(self, tag: str) -> None:
        self._in_video = self._in_video and tag != "video"

    def _add(self, address: str | None) -> None:
        url = urljoin(self._base, address or "").partition("#")[0]
        if address and url.startswith(("http://", "https://")) and url not in self.found:
            self.found.append(url)


async def _write(answer: httpx.Response, path: Path, most: int) -> None:
    await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
    size = 0
    with await asyncio.to_thread(path.open, "wb") as file:
        async for chunk in answer.aiter_bytes(_CHUNK):
            size += len(chunk)
            if size > most:
                raise Refused(f"{answer.url} has more than {most // _MEGABYTE} MB")
            await asyncio.to_thread(file.write, chunk)


async def _limited(answer: httpx.Response, most: int) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_bytes(_CHUNK):
        body += chunk
        if len(body) > most:
            raise Refused(f"{answer.url} has more than {most // _MEGABYTE} MB")
    return bytes(body)


def _pause(answer: httpx.Response) -> float:
    """Retry-After in seconds: a number, or a date as seen from the answer's own."""
    text = answer.headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return min(float(text), _LONGEST_PAUSE)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(answer.headers["Date"])
    except (ValueError, KeyError, TypeError):
        return _USUAL_PAUSE
    return min(max(wait.total_seconds(), 1.0), _LONGEST_PAUSE)
