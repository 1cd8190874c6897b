"""Runs the site and its proxies in a thread of their own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from story_checker.stand_in.forward import ForwardProxy
from story_checker.stand_in.site import HouseRules, Site

T = TypeVar("T")
_LIMIT = 30.0
_FIRST_EXIT = 11


class World:
    """`with World(rules, proxies=5) as world:` – the servers listen on free ports until the end of the block.

    Proxy N sends from the address 127.0.0.(10 + N), and has an account at the site: `user-N`.
    """

    def __init__(self, rules: HouseRules, *, proxies: int = 5) -> None:
        self.site = Site(rules)
        self.proxies = [
            ForwardProxy(
                f"proxy-{number}", f"127.0.0.{_FIRST_EXIT + number - 1}", user="story", password=f"proxy-word-{number}"
            )
            for number in range(1, proxies + 1)
        ]
        self.site.accounts = {user_of(proxy): password_of(proxy) for proxy in self.proxies}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stand-in", daemon=True)

    def __enter__(self) -> "World":
        self._thread.start()
        for server in (self.site.server, *(proxy.server for proxy in self.proxies)):
            self.do(server.start())
        return self

    def __exit__(self, *_: object) -> None:
        for server in (*(proxy.server for proxy in self.proxies), self.site.server):
            self.do(server.stop())
        self.do(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the servers' own event loop, such as `proxy.server.stop()`."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_LIMIT)


def user_of(proxy: ForwardProxy) -> str:
    return f"user-{proxy.name.removeprefix('proxy-')}"


def password_of(proxy: ForwardProxy) -> str:
    return f"login-word-{proxy.name.removeprefix('proxy-')}"


async def _settle() -> None:
    """End the connections that were cut."""
    me = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not me]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
