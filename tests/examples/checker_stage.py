"""Each test gets its own site, proxies and store, with a story checker on them."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from story_checker.app import app, database
from story_checker.settings import SystemSettings
from story_checker.stand_in.audit import Figures, audit
from story_checker.stand_in.forward import ForwardProxy
from story_checker.stand_in.site import HouseRules
from story_checker.stand_in.world import World, password_of, user_of
from story_checker.worker_manager import WorkerPool

SETTINGS = SystemSettings.load(database)
LIMIT, HOUR = SETTINGS.proxy_hourly_limit, SETTINGS.hour
PATIENCE = 20.0


class Stage:
    """The site with its proxies, the store, and the objects of the document's users."""

    def __init__(self, folder: Path, rules: HouseRules, proxies: int) -> None:
        self.url = f"sqlite:///{folder / 'pitboss.db'}"
        self.world = World(rules, proxies=proxies)
        self.site = self.world.site

    def __enter__(self) -> "Stage":
        self.world.__enter__()
        self.take_over()
        return self

    def take_over(self) -> None:
        """Point the app to this site and this store."""
        replace(SETTINGS, site=self.site.url).save(database)
        app.use(self.url)

    def __exit__(self, *_: object) -> None:
        app.close()
        self.world.__exit__()

    def proxy(self, number: int) -> ForwardProxy:
        return self.world.proxies[number - 1]

    def address(self, number: int) -> str:
        """The address of the proxy that the site sees."""
        return self.proxy(number).exit_address

    def full_url(self, number: int) -> str:
        """The proxy's URL with its password."""
        proxy = self.proxy(number)
        return proxy.url.replace("http://", f"http://{proxy.user}:{proxy.password}@")

    def profiles(self, count: int, name: str = "profile") -> list[str]:
        """Add profiles to the site; every second one has a story."""
        names = [f"{name}_{number}" for number in range(count)]
        self.site.profiles |= {one: number % 2 for number, one in enumerate(names)}
        return names

    def pool(self, *, cookies: bool = True) -> WorkerPool:
        """A pool with all proxies. Each has a session already, or an account to log in."""
        pool = WorkerPool()
        for number in range(1, len(self.world.proxies) + 1):
            self.add(pool, number, cookies=cookies)
        return pool

    def add(self, pool: WorkerPool, number: int, *, cookies: bool = True) -> bool:
        proxy = self.proxy(number)
        cookie = self.site.open_session(user_of(proxy), proxy.exit_address) if cookies else None
        return pool.add_proxy_session(
            self.full_url(number), cookie, account=user_of(proxy), password=password_of(proxy)
        )

    def figures(self, number: int) -> Figures:
        """What the site's own log says about a proxy."""
        return audit(self.site.arrivals, limit=LIMIT, window=HOUR).get(self.address(number), Figures())

    def violations(self) -> int:
        return sum(one.violations for one in audit(self.site.arrivals, limit=LIMIT, window=HOUR).values())

    def logins(self) -> int:
        return sum(arrival.path == "/login" for arrival in self.site.arrivals)

    def answered(self, profile: str) -> int:
        """How often the site answered about a profile."""
        return sum(one.path == f"/stories/{profile}" and one.status == 200 for one in self.site.arrivals)


def until(condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
    ends = time.monotonic() + within
    while not condition():
        assert time.monotonic() < ends, f"not within {within} s: {what}"
        time.sleep(0.02)


async def auntil(condition: Callable[[], object], what: str, within: float = PATIENCE) -> None:
    await asyncio.to_thread(until, condition, what, within)
