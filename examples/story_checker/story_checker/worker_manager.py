"""The document's WorkerPool and Worker, on Pitboss's resource pool.

The store keeps the state of each proxy; these objects only hold their leases. Several pools, in several threads,
processes or hosts, share the same limits, also with the tasks that `pitboss up` runs.
"""

import asyncio
import json
import threading
import time
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

from pitboss import Lease, TimedOutWaiting
from pitboss.client.member_sessions import NotPrepared
from pitboss.model.resource import Resource
from story_checker.app import (
    browser_for,
    database,
    judged,
    keep,
    noted,
    proxies,
)
from story_checker.checker import CheckError, Manners, SessionExpired, TooManyRequests, UnknownProfile
from story_checker.database import BatchProfile, StoryResult
from story_checker.settings import SystemSettings

ProxyStates = dict[str, dict[str, bool]]


class Session:
    """The session of a proxy at the site."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @property
    def cookie(self) -> str:
        return self._lease.secret("cookie")

    def is_valid(self) -> bool:
        """Whether there is a cookie that the site has not refused."""
        return "cookie" in self._lease.secret_names and not database.is_refused(self._lease.name, self.cookie)


class ProxySession:
    """A proxy and its session at the site: one member of the pool."""

    def __init__(self, lease: Lease) -> None:
        self.lease, self.session = lease, Session(lease)
        self.proxy: str = lease["url"]


class StoryChecker:
    """Asks the site about profiles through one proxy and its session."""

    def __init__(self, proxy_session: ProxySession, settings: SystemSettings) -> None:
        self.proxy_session, self._settings = proxy_session, settings
        self.stories = 0

    async def check_profile(self, username: str) -> bool:
        """Whether the profile has a story; raises a `CheckError` if that could not be found out."""
        lease = self.proxy_session.lease
        with noted(lease):
            browser = browser_for(self._settings, lease)
            self.stories = await browser.stories(username, self.proxy_session.session.cookie)
        return self.stories > 0


class Proxy:
    """A proxy as the store knows it at one moment, under the document's names."""

    def __init__(self, member: Resource, settings: SystemSettings) -> None:
        record, now = member.record, _now()
        self.name, self.url = member.name, _url_of(member)
        self.is_active = not is_out(member)
        self.rate_limited = is_limited(member, settings)
        # While a request is under way, it counts at the latest moment at which it can be sent.
        self.last_used = _time(min(member.last_used_at, now))
        self.last_success, self.last_error = _time(record.last_ok_at), record.last_error
        self.error_count, self.avg_response_time = record.failures, record.took / 1000
        self.is_ready = self.is_active and not self.rate_limited and not member.in_use and member.available_at <= now


class Worker:
    """One proxy with its session. The pool lends it for one or more checks; give it back with `pool.release_worker`."""

    def __init__(self, proxy: str, name: str, settings: SystemSettings, lease: Lease | None = None) -> None:
        self.proxy, self.name, self._settings, self._lease = proxy, name, settings, lease
        self.story_checker: StoryChecker | None = None
        self.last_result: StoryResult | None = None
        self.last_error: CheckError | None = None
        self.manners = Manners(settings.site, timeout=settings.proxy_test_timeout)
        # The store has granted it a request that was not sent yet, unless a login spent it.
        self._fresh = False
        self._refused = False

    @classmethod
    def lent(cls, lease: Lease, settings: SystemSettings, since: float) -> "Worker":
        """A worker with a proxy that was asked for at `since`."""
        worker = cls(lease["url"], lease.name, settings, lease)
        worker._fresh = database.requests_since(lease.name, since) == 0
        return worker

    @property
    def lease(self) -> Lease:
        if self._lease is None:
            raise RuntimeError(f"the worker of {self.name} is not lent: pool.get_worker() lends one")
        return self._lease

    @property
    def proxy_session(self) -> ProxySession:
        return ProxySession(self.lease)

    @property
    def is_disabled(self) -> bool:
        """Whether an operator disabled its proxy, or it failed too often and is on the blacklist."""
        return is_out(_member(self.name))

    @property
    def is_rate_limited(self) -> bool:
        """Whether the site asked for a pause, or this hour's requests are used up. Never before its first request."""
        return not self._fresh and (self._refused or is_limited(_member(self.name), self._settings))

    @property
    def requests_this_hour(self) -> int:
        """Requests through this proxy in the last hour, by all processes."""
        return database.requests_since(self.name, self.hour_start.timestamp())

    @property
    def hour_start(self) -> datetime:
        """Since when requests count: an hour ago. The hour moves on by itself, so nothing is reset."""
        return datetime.fromtimestamp(time.time() - self._settings.hour, UTC)

    @property
    def error_count(self) -> int:
        """Failures in a row."""
        member = _member(self.name)
        return member.record.failures if member else 0

    def clear_rate_limit(self) -> None:
        """End a cooldown. Uses still count against the hourly limit, because the site counts them too."""
        proxies.reset(self.name)
        self._refused = False

    def returned(self) -> None:
        """Call after the lease was given back: from now on the store knows the proxy's state."""
        self._fresh = self._refused = False

    async def check_story(self, batch_profile: BatchProfile | str) -> bool:
        """Whether the check worked; its result is in `last_result`. After a failure, give the worker back.

        Takes a `BatchProfile` (or any object with `profile.username`), or the name of a profile.
        """
        username, batch = _asked(batch_profile)
        # A worker that is not fresh is told by the limits themselves: they may allow a request within a second.
        if self.last_error is not None or self.is_disabled or not self.proxy_session.session.is_valid():
            return False
        self._fresh = False
        self.story_checker = StoryChecker(self.proxy_session, self._settings)
        try:
            await self.manners.check(f"/stories/{username}")
            await self.story_checker.check_profile(username)
        except TimedOutWaiting:
            # The limits of its proxy do not allow a request soon.
            self._refused = True
            return False
        except CheckError as error:
            self._failed(error, username)
            _note(batch_profile, "failed", error=str(error))
            return False
        task, stories = f"own-{self.lease.id}-{time.time_ns()}", self.story_checker.stories
        self.last_result = await asyncio.to_thread(keep, task, username, batch, stories, self.name)
        _note(batch_profile, "completed", has_story=stories > 0)
        return True

    def _failed(self, error: CheckError, profile: str) -> None:
        self.last_error = error
        self.lease.report = judged(error)
        match error:
            case TooManyRequests():
                self._refused = True
            case SessionExpired():
                # Not the proxy's fault: it logs in again before its next use.
                self.lease.ok()
                database.refuse(self.name, self.lease.secret("cookie"))
            case UnknownProfile():
                database.suspend(profile)


class WorkerPool:
    """Lends workers, the least recently used proxy first. Any thread may call any method."""

    def __init__(self, settings: SystemSettings | None = None) -> None:
        self.settings = settings or SystemSettings.load(database)
        self._lock = threading.Lock()
        self._active: set[Worker] = set()
        self._released: dict[str, Worker] = {}
        self._reserved = 0
        self._closed = False

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def active_workers(self) -> list[Worker]:
        with self._lock:
            return [*self._active]

    @property
    def available_workers(self) -> list[Worker]:
        """The workers that can be lent now. They are healthy, but others may take them first: `get_worker` lends."""
        ready = [proxy for proxy in self.proxies if proxy.is_ready]
        with self._lock:
            known = dict(self._released)
        return [known.get(one.name) or Worker(one.url, one.name, self.settings) for one in ready]

    @property
    def proxies(self) -> list[Proxy]:
        return [Proxy(member, self.settings) for member in proxies.members()]

    @property
    def last_used(self) -> dict[str, datetime]:
        """When each proxy was used last, by its URL, in all processes; one that was never used is not there."""
        return {proxy.url: proxy.last_used for proxy in self.proxies if proxy.last_used is not None}

    @property
    def proxy_states(self) -> ProxyStates:
        """Every proxy by its URL: disabled, rate limited, or neither."""
        members = proxies.members()
        return {
            _url_of(one): {"disabled": is_out(one), "rate_limited": is_limited(one, self.settings)} for one in members
        }

    def add_proxy_session(
        self, proxy: str, session_cookie: str | None = None, *, account: str | None = None, password: str | None = None
    ) -> bool:
        """Add a proxy with a session cookie, or with an account to log in when needed. True if it is new.

        Secrets are encrypted before they reach the store. A proxy that was removed is enabled again.
        """
        name, fields, secrets = _read(proxy)
        if session_cookie is None and (account is None or password is None):
            raise ValueError(f"{name} has neither a session cookie nor an account and its password")
        if account is not None:
            fields["account"] = account
        given = {"cookie": session_cookie, "account_password": password}
        new = proxies.add(name, fields, {**secrets, **{key: text for key, text in given.items() if text is not None}})
        proxies.enable(name)
        return new

    def get_worker(self) -> Worker | None:
        """A worker, or None at once if every proxy is in use, resting or out, or too many workers are active."""
        if not self._reserve():
            return None
        worker, since = None, time.time()
        try:
            lease = self._acquire()
            worker = Worker.lent(lease, self.settings, since) if lease is not None else None
            return worker
        finally:
            self._settle(worker)

    def release_worker(self, worker: Worker) -> None:
        """Give it back, with the outcome of its checks. Harmless to repeat."""
        if self._forget(worker):
            proxies.release(worker.lease)
            worker.returned()
            with self._lock:
                self._released[worker.name] = worker

    def remove_worker(self, worker: Worker, reason: str = "removed") -> None:
        """Give it back, and disable its proxy until it is added or enabled again."""
        proxies.disable(worker.name, reason=reason)
        self.release_worker(worker)

    def shutdown(self) -> None:
        """Give all workers back, and lend no more."""
        with self._lock:
            self._closed = True
        for worker in self.active_workers:
            self.release_worker(worker)

    def _reserve(self) -> bool:
        with self._lock:
            if self._closed or len(self._active) + self._reserved >= self.settings.max_threads:
                return False
            self._reserved += 1
            return True

    def _settle(self, worker: Worker | None) -> None:
        with self._lock:
            self._reserved -= 1
            if worker is not None:
                self._active.add(worker)

    def _forget(self, worker: Worker) -> bool:
        with self._lock:
            known = worker in self._active
            self._active.discard(worker)
            return known

    def _acquire(self) -> Lease | None:
        """A lease with a valid session; a proxy whose login fails is skipped."""
        for _ in range(len(proxies.members())):
            try:
                return proxies.acquire(wait=0)
            except TimedOutWaiting:
                return None
            except NotPrepared:
                continue
        return None


def is_out(member: Resource | None) -> bool:
    return member is None or not member.enabled or member.record.blacklisted_until > _now()


def is_limited(member: Resource | None, settings: SystemSettings) -> bool:
    """Whether the site asked for a pause, or this hour's requests have been sent."""
    if member is None or is_out(member):
        return False
    sent = database.requests_since(member.name, time.time() - settings.hour)
    return member.record.cooldown_until > _now() or sent >= settings.proxy_hourly_limit


def _member(name: str) -> Resource | None:
    return next(iter(proxies.members(name)), None)


def _asked(batch_profile: BatchProfile | str) -> tuple[str, str | None]:
    """The name of the profile, and the batch that it belongs to."""
    if isinstance(batch_profile, str):
        return batch_profile, None
    return batch_profile.profile.username, getattr(batch_profile, "batch_id", None)


def _note(batch_profile: BatchProfile | str, status: str, **values: object) -> None:
    """Write the outcome on the profile of the batch."""
    if isinstance(batch_profile, BatchProfile):
        batch_profile.status = status
        batch_profile.processed_at = datetime.now(UTC)
        for name, value in values.items():
            setattr(batch_profile, name, value)


def _time(moment: int) -> datetime | None:
    return datetime.fromtimestamp(moment / 1_000_000, UTC) if moment else None


def _read(proxy: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Name, fields and secrets of a proxy such as http://user:password@host:port."""
    parts = urlsplit(proxy)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        # The value may contain a password, so the message does not repeat it.
        raise ValueError("a proxy is given as http://host:port or http://user:password@host:port")
    name = f"{parts.hostname}:{port}"
    fields = {"url": f"{parts.scheme}://{name}"}
    if parts.username:
        fields["user"] = unquote(parts.username)
    return name, fields, {"password": unquote(parts.password)} if parts.password else {}


def _url_of(member: Resource) -> str:
    return str(json.loads(member.fields)["url"])


def _now() -> int:
    return time.time_ns() // 1000
