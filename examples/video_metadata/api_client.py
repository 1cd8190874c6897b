"""The client of the video API: paced, pooled and cached. It sends nothing while the API wants a pause.

The client of Pitboss itself is `pitboss.remote.APIClient`.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import httpx

from pitboss.remote import APIConnectionError, TaskProcessingError, TTLCache

MOST_IDS = 50
CACHE_TTL = 3600.0
CACHE_ENTRIES = 1000
_PARTS = "snippet,contentDetails,statistics"
_TEMPORARY = (429, 500, 502, 503, 504)
_UNKNOWN = object()  # None is an answer: there is no such video
_QUOTA = ("quotaExceeded", "dailyLimitExceeded")

Json = dict[str, Any]


class PauseNeeded(APIConnectionError):
    """The API wants a pause of `retry_after` seconds, longer than a task should wait. Nothing was sent."""


class QuotaExceeded(PauseNeeded):
    """The quota of the API key is used up."""


class RequestRefused(TaskProcessingError):
    """The API refuses this request and would refuse it again: a wrong key or a wrong parameter."""


@dataclass(frozen=True)
class Manners:
    """How to behave as a guest.

    `longest_wait`: the task does not wait for a longer pause, it goes back to the queue. `quota_pause`: how long to
    leave the API alone when the quota is used up; it does not say when there is a new one.
    """

    requests_per_second: float = 5.0
    max_attempts: int = 4
    first_backoff: float = 0.5
    longest_wait: float = 10.0
    quota_pause: float = 3600.0
    timeout: float = 10.0


class RequestRate:
    """`with rate.permit():` around each request: in any second, wherever it begins, at most `per_second` arrive.

    There are that many permits. Each comes back a second after the answer, not after the start: then the time that
    requests travel cannot bring them closer together at the far side.
    """

    def __init__(self, per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        permits = max(1, int(per_second))
        self._span, self._clock, self._sleep = permits / per_second, clock, sleep
        self._free_at: queue.SimpleQueue[float] = queue.SimpleQueue()
        for _ in range(permits):
            self._free_at.put(clock())

    @contextmanager
    def permit(self) -> Iterator[None]:
        self._sleep(max(0.0, self._free_at.get() - self._clock()))
        try:
            yield
        finally:
            self._free_at.put(self._clock() + self._span)


class VideoAPIClient:
    """Sends requests with a name and within the rate, repeats what can be repeated, and reads errors.

    The key goes into a header: URLs end up in logs.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        user_agent: str,
        manners: Manners = Manners(),
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._manners, self._clock, self._sleep = manners, clock, sleep
        self._rate = RequestRate(manners.requests_per_second, clock, sleep)
        self._resume_at = clock()
        self._trouble = APIConnectionError()
        self._http = httpx.Client(
            base_url=base_url,
            headers={"User-Agent": user_agent, "X-Goog-Api-Key": api_key},
            timeout=manners.timeout,
            limits=httpx.Limits(max_connections=20, max_keepalive_connections=10, keepalive_expiry=60),
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def reachable(self) -> bool:
        """Whether the API answers at all. It asks for no data, so it costs no quota."""
        if self._resume_at > self._clock():
            return True  # it answered, and wants a pause
        try:
            with self._rate.permit():
                return self._http.get("").status_code < HTTPStatus.INTERNAL_SERVER_ERROR
        except httpx.TransportError:
            return False

    def get(self, path: str, params: dict[str, str]) -> Json:
        """The answer as JSON, after as many attempts as our manners allow."""
        for attempt in range(self._manners.max_attempts):
            with self._rate.permit():
                self._wait()
                answer = self._send(path, params)
            if not isinstance(answer, APIConnectionError):
                return answer
            self._begin_pause(answer, attempt)
        raise self._trouble

    def _wait(self) -> None:
        """Wait for the end of the API's pause, or raise if that is far."""
        left = self._resume_at - self._clock()
        if left > self._manners.longest_wait:
            kind = QuotaExceeded if isinstance(self._trouble, QuotaExceeded) else PauseNeeded
            raise kind(*self._trouble.args, status=self._trouble.status, retry_after=left)
        self._sleep(max(0.0, left))

    def _begin_pause(self, trouble: APIConnectionError, attempt: int) -> None:
        """Send nothing for a while: as long as the API said, or longer after each attempt."""
        seconds = trouble.retry_after or self._manners.first_backoff * 2**attempt
        self._resume_at = max(self._resume_at, self._clock() + seconds)
        self._trouble = trouble

    def _send(self, path: str, params: dict[str, str]) -> Json | APIConnectionError:
        try:
            response = self._http.get(path, params=params)
        except httpx.TransportError as error:
            return APIConnectionError(f"the video API cannot be reached: {str(error) or type(error).__name__}")
        if response.is_success:
            return _json(response) or APIConnectionError("the video API answered without JSON")
        reason, message = _error_of(response)
        if reason in _QUOTA:
            return QuotaExceeded(message, status=response.status_code, retry_after=self._manners.quota_pause)
        if response.status_code in _TEMPORARY:
            told = f"{response.status_code} {message}"
            return APIConnectionError(told, status=response.status_code, retry_after=_retry_after(response))
        raise RequestRefused(f"{response.status_code} {reason}: {message}")


class CachedAPIClient(VideoAPIClient):
    """Remembers answers for an hour: each page of a search, and each video, also that it does not exist."""

    def __init__(self, base_url: str, api_key: str, **options: Any) -> None:
        super().__init__(base_url, api_key, **options)
        self._lock = threading.Lock()  # two tasks at a time do not ask for the same video twice
        self._videos = TTLCache(maxsize=CACHE_ENTRIES, ttl=CACHE_TTL)
        self._pages = TTLCache(maxsize=CACHE_ENTRIES, ttl=CACHE_TTL)

    def get_video_metadata(self, video_id: str) -> Json | None:
        """One video, or None if it does not exist or is private."""
        return self.get_videos([video_id])[video_id]

    def get_videos(self, video_ids: Sequence[str]) -> dict[str, Json | None]:
        """Up to 50 videos in at most one request: only those that are not in the cache are asked for."""
        with self._lock:
            known = {one: self._videos.get(one, _UNKNOWN) for one in video_ids}
            unknown = [one for one in video_ids if known[one] is _UNKNOWN]
            if unknown:
                answer = self.get("videos", {"part": _PARTS, "id": ",".join(unknown)})
                found = {item["id"]: item for item in answer["items"]}
                for one in unknown:
                    self._videos[one] = known[one] = found.get(one)
            return known

    def search_page(self, query: str, size: int, page_token: str = "") -> Json:
        """One page of results. The API may put fewer on it than asked for."""
        params = {"part": "snippet", "type": "video", "q": query, "maxResults": str(size)}
        if page_token:
            params["pageToken"] = page_token
        with self._lock:
            page: Json | None = self._pages.get(tuple(params.values()))
            if page is None:
                page = self._pages[tuple(params.values())] = self.get("search", params)
            return page


def _json(response: httpx.Response) -> Json:
    """The body, or nothing if it is not a JSON object: a proxy on the way may answer with a page."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _error_of(response: httpx.Response) -> tuple[str, str]:
    """The reason and the message of an error, as far as it has them."""
    try:
        error = _json(response)["error"]
        return str(error["errors"][0]["reason"]), str(error["message"])
    except (LookupError, TypeError):
        return "", response.reason_phrase


def _retry_after(response: httpx.Response) -> float | None:
    """Retry-After in seconds; it may be a date."""
    told = response.headers.get("Retry-After", "")
    if told.isdecimal():
        return float(told)
    try:
        return max(0.0, (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds())
    except ValueError:
        return None
