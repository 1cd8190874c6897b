"""The document's WorkerPool and Worker, on Pitboss's resource pool.

The store keeps the state of each proxy; these objects only hold their leases. Several pools, in several threads,
processes or hosts, share the same limits, also with the tasks that `pitboss up` runs.
"""

import asyncio
import json
import threading
import time
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
from story_checker.database import StoryResult
from story_checker.settings import SystemSettings

ProxyStates = dict[str, dict[str, bool]]


class Worker:
    """A lease of one proxy with its session, for one or more checks. Give it back with `pool.release_worker`."""

    def __init__(self, lease: Lease, settings: SystemSettings) -> None:
        self.lease, self._settings = lease, settings
        self.proxy: str = lease["url"]
        self.last_result: StoryResult | None = None
        self.last_error: CheckError | None = None
        self.manners = Manners(settings.site, timeout=settings.proxy_test_timeout)
        self._refused = False

    @property
    def name(self) -> str:
        return self.lease.name

    @property
    def is_disabled(self) -> bool:
        """Whether an operator disabled its proxy, or it failed too often and is on the blacklist."""
        return is_out(_member(self.name))

    @property
    def is_rate_limited(self) -> bool:
        """Whether the site asked for a pause, or this hour's requests are used up."""
        return self._refused or is_limited(_member(self.name), self._settings)

    @property
    def requests_this_hour(self) -> int:
        """Requests through this proxy in the last hour, by all processes."""
        return database.requests_since(self.name, time.time() - self._settings.hour)

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
        self._refused = False

    async def check_story(self, profile: str) -> bool:
        """Whether the check worked; its result is in `last_result`. After a failure, give the worker back."""
        if self.last_error is not None or self.is_disabled:
            return False
        try:
            await self.manners.check(f"/stories/{profile}")
            with noted(self.lease):
                stories = await browser_for(self._settings, self.lease).stories(profile, self.lease.secret("cookie"))
        except TimedOutWaiting:
            # The limits of its proxy do not allow a request soon.
            self._refused = True
            return False
        except CheckError as error:
            self._failed(error, profile)
            return False
        task = f"own-{self.lease.id}-{time.time_ns()}"
        self.last_result = await asyncio.to_thread(keep, task, profile, None, stories, self.name)
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
        worker = None
        try:
            lease = self._acquire()
            worker = Worker(lease, self.settings) if lease is not None else None
            return worker
        finally:
            self._settle(worker)

    def release_worker(self, worker: Worker) -> None:
        """Give it back, with the outcome of its checks. Harmless to repeat."""
        if self._forget(worker):
            proxies.release(worker.lease)
            worker.returned()

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
