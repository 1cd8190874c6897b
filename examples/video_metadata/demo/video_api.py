"""A stand-in for the video API on loopback: YouTube's Data API v3 in shape, with quotas, limits and bad moments.

By hand: `python -m demo.video_api --port 8900`, then YOUTUBE_API_URL=http://127.0.0.1:8900/youtube/v3
"""

import argparse
import base64
import binascii
import json
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from demo.catalogue import Catalogue

ROOT = "/youtube/v3"
COSTS = {"search": 100, "videos": 1}
MOST = 50
_DEFAULT_RESULTS = 5


class Arrival(NamedTuple):
    """One request as the far side saw it. `client` is the User-Agent, `asked` the query or the ids."""

    at: float
    client: str
    peer: str
    path: str
    asked: tuple[str, ...]
    status: int
    reason: str = ""
    retry_after: float = 0
    units: int = 0


@dataclass(frozen=True)
class Rules:
    """`quota`: units of the key. When they are used up, new ones come after `day` seconds.

    `page`: the most results on one page, even if more are asked for.

    `troubles`: every N-th request is answered with that status, but not two of one client in a row. 429 and 503 say
    `Retry-After: 1`.
    """

    key: str = "demo-key"
    quota: int = 10_000
    day: float = 86_400.0
    per_second: int = 50
    page: int = 20
    troubles: Mapping[int, int] = field(default_factory=dict)


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]
    reason: str = ""
    retry_after: int = 0
    units: int = 0


class Refused(Exception):
    """An error as the API describes it: a status and a reason."""

    def __init__(self, status: int, reason: str, message: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after = status, reason, retry_after

    def answer(self) -> Answer:
        error = {"message": str(self), "domain": "youtube", "reason": self.reason}
        body = {"error": {"code": self.status, "message": str(self), "errors": [error]}}
        return Answer(self.status, body, self.reason, self.retry_after)


class VideoAPI:
    """Answers requests by its rules. `arrivals` is its log; `serving` puts it on a port."""

    def __init__(
        self, rules: Rules, catalogue: Catalogue | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rules = rules
        self.catalogue = catalogue or Catalogue()
        self.arrivals: list[Arrival] = []
        self._lock = threading.Lock()
        self._troubled: set[str] = set()  # clients whose last answer was one
        self._units = [0]
        self._new_quota_at: float | None = None
        self._recent: dict[str, deque[float]] = defaultdict(deque)
        self._clock = clock

    def units(self) -> list[int]:
        """The units that were used of each quota so far."""
        with self._lock:
            return [*self._units]

    def handle(self, path: str, params: dict[str, str], headers: Mapping[str, str], peer: str) -> Answer:
        """Answer one request, and log it. One at a time: the log's order is the order of the decisions."""
        with self._lock:
            at = self._clock()
            try:
                answer = self._decide(path, params, headers, at)
            except Refused as refused:
                answer = refused.answer()
            asked = tuple(params.get("id", "").split(",")) if path == "videos" else (params.get("q", ""),)
            client = headers.get("User-Agent", "")
            self.arrivals.append(
                Arrival(at, client, peer, path, asked, answer.status, answer.reason, answer.retry_after, answer.units)
            )
            return answer

    def _decide(self, path: str, params: dict[str, str], headers: Mapping[str, str], at: float) -> Answer:
        if path not in COSTS:
            raise Refused(404, "notFound", "Not Found")
        key = params.get("key") or headers.get("X-Goog-Api-Key") or ""
        if key != self.rules.key:
            raise Refused(400, "badRequest", "API key not valid. Please pass a valid API key.")
        self._trouble(headers.get("User-Agent", ""))
        self._limit(key, at)
        self._check_quota(COSTS[path], at)
        body = self._search(params) if path == "search" else self._videos(params)
        self._units[-1] += COSTS[path]
        return Answer(200, body, units=COSTS[path])

    def _check_quota(self, cost: int, at: float) -> None:
        if self._new_quota_at is not None and at >= self._new_quota_at:
            self._new_quota_at = None
            self._units.append(0)
        if self._new_quota_at is not None or self._units[-1] + cost > self.rules.quota:
            self._new_quota_at = self._new_quota_at or at + self.rules.day
            raise Refused(403, "quotaExceeded", "The request cannot be completed because you have exceeded your quota.")

    def _trouble(self, client: str) -> None:
        number, again = len(self.arrivals) + 1, client in self._troubled
        self._troubled.discard(client)
        for every, status in self.rules.troubles.items():
            if number % every == 0 and not again:
                self._troubled.add(client)
                pause = 1 if status in (429, 503) else 0
                reason = "rateLimitExceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else "backendError"
                raise Refused(status, reason, HTTPStatus(status).phrase, pause)

    def _limit(self, key: str, at: float) -> None:
        recent = self._recent[key]
        while recent and recent[0] <= at - 1:
            recent.popleft()
        if len(recent) >= self.rules.per_second:
            raise Refused(429, "rateLimitExceeded", "Too many requests", math.ceil(recent[0] + 1 - at))
        recent.append(at)

    def _search(self, params: dict[str, str]) -> dict[str, Any]:
        _require(params, "part")
        size = min(_whole(params.get("maxResults", str(_DEFAULT_RESULTS)), "maxResults"), self.rules.page)
        start = _offset(params["pageToken"]) if "pageToken" in params else 0
        found = self.catalogue.search(params.get("q", ""))
        more = {"nextPageToken": _token(start + size)} if start + size < len(found) else {}
        return {
            "kind": "youtube#searchListResponse",
            **more,
            "pageInfo": {"totalResults": len(found), "resultsPerPage": size},
            "items": [video.found() for video in found[start : start + size]],
        }

    def _videos(self, params: dict[str, str]) -> dict[str, Any]:
        _require(params, "part", "id")
        ids = params["id"].split(",")
        if len(ids) > MOST:
            raise Refused(400, "invalidFilters", f"at most {MOST} ids in one request, not {len(ids)}")
        videos = [video for video in map(self.catalogue.get, ids) if video is not None]
        parts = set(params["part"].split(","))
        return {
            "kind": "youtube#videoListResponse",
            "pageInfo": {"totalResults": len(videos), "resultsPerPage": len(videos)},
            "items": [video.resource(parts) for video in videos],
        }


def _require(params: dict[str, str], *names: str) -> None:
    for name in names:
        if not params.get(name):
            raise Refused(400, "missingRequiredParameter", f"No {name} specified.")


def _whole(text: str, name: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise Refused(400, "invalidParameter", f"{name} is from 1 to {MOST}, not {text}")
    return int(text)


def _token(offset: int) -> str:
    return base64.urlsafe_b64encode(b"page:%d" % offset).decode()


def _offset(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token).removeprefix(b"page:"))
    except (binascii.Error, ValueError) as error:
        raise Refused(400, "invalidPageToken", "The page token is not valid.") from error


@contextmanager
def serving(api: VideoAPI, port: int = 0) -> Iterator[str]:
    """Serve on loopback until the end of the block; gives the URL."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.api = api
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="video-api", daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{ROOT}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: VideoAPI

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a worker was killed, and its connections broke."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open, so that a client can pool them
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        path = target.path.removeprefix(f"{ROOT}/")
        peer = f"{self.client_address[0]}:{self.client_address[1]}"
        headers = {name.title(): value for name, value in self.headers.items()}
        answer = self.server.api.handle(path, dict(parse_qsl(target.query)), headers, peer)
        body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        if answer.retry_after:
            self.send_header("Retry-After", str(answer.retry_after))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 – the name of the base class
        """Print nothing: `VideoAPI.arrivals` is the log."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.video_api", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument("--key", default=Rules.key, help="the key that it accepts")
    parser.add_argument("--quota", type=int, default=Rules.quota, help="units per day: a search costs 100, videos 1")
    asked = parser.parse_args()
    with serving(VideoAPI(Rules(key=asked.key, quota=asked.quota)), asked.port) as url:
        print(f"YOUTUBE_API_URL={url} YOUTUBE_API_KEY={asked.key}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
