"""An app whose handlers hold resources, and record what they did with them."""

import asyncio
import logging
import os
import random
import time
import urllib.request

from pitboss import App, Lease, RateLimited, ResourceFailed, ctx

app = App()
log = logging.getLogger("lenders")
proxies = app.resources("proxies", min_delay="50ms", cooldown="1h", max_failures=99)
slots = app.resources("slots", concurrency=1)
leaky = app.resources("leaky", max_failures=99)
guarded = app.resources("guarded", per_minute=9, guard="4s")
sites = app.resources("sites", rate="5/2s", min_delay="150ms")
FIELDS = ("password", "token", "cookie", "api_key", "pin")


def leave(line: str) -> None:
    descriptor = os.open(os.environ["TRACES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


@proxies.session("cookie", valid_for="1h")
async def log_in(lease: Lease) -> str:
    leave(f"login {lease.name}")
    if lease.get("broken"):
        raise ConnectionError("cannot log in")
    return f"cookie-of-{lease.name}"


@guarded.valid
async def slowly(lease: Lease) -> bool:
    await asyncio.sleep(float(lease["takes"]))
    return True


@app.task
async def far(site: Lease = guarded.lease()) -> str:
    return site.name


@app.task
def visit(pages: int, site: Lease = sites.lease()) -> None:
    """Own clients, each of which takes a while until its request is sent, as cold ones do."""
    for page in range(pages):
        if page:
            site.use_sync()
        time.sleep(random.uniform(0, 0.3))
        with urllib.request.urlopen(f"{site['address']}/{site.name}", timeout=20) as answer:
            answer.read()


@app.task
async def check(profile: str, proxy: Lease = proxies.lease(labels=("web",))) -> int:
    assert proxy.secret("cookie") == f"cookie-of-{proxy.name}"
    return proxy.leased.leased_at


@app.task
async def often(times: int, proxy: Lease = proxies.lease(labels=("web",))) -> list[int]:
    return [await proxy.use() for _ in range(times)]


@app.task
def often_in_thread(times: int, proxy: Lease = proxies.lease(labels=("web",))) -> list[int]:
    return [proxy.use_sync() for _ in range(times)]


@app.task
async def limited(proxy: Lease = proxies.lease(labels=("web",))) -> str:
    if proxy.name == "p1":
        raise RateLimited(retry_after="1h")
    return proxy.name


@app.task
async def hold(seconds: float, slot: Lease = slots.lease()) -> str:
    leave(f"began {slot.name}")
    await asyncio.sleep(seconds)
    leave(f"ended {slot.name}")
    return slot.name


@app.task(queue="apart")
async def borrow(name: str) -> str:
    """Takes another lease and adds a member."""
    await slots.aadd(name, secrets={"password": "from-inside"})
    async with slots.lease(wait="5s") as lease:
        return lease.name


@app.task(queue="leaky", max_attempts=1)
async def leak(way: str, proxy: Lease = leaky.lease()) -> str:
    values = [proxy.secret(name) for name in FIELDS]
    told = " ".join(values)
    ctx.progress(50, f"with {told}")
    log.warning("using %s", told, extra={"values": values, "url": proxy.url})
    try:
        raise ValueError(told)
    except ValueError:
        log.exception("it broke")
    match way:
        case "raise":
            raise RuntimeError(f"failed with {told} at {proxy.url}")
        case "blame":
            raise ResourceFailed(told)
        case "limit":
            raise RateLimited(told, retry_after="1h")
        case "type":
            raise type(f"Error_{values[0].replace('-', '_')}", (Exception,), {})(proxy.url)
        case "judge":
            proxy.failed(told)
    return repr(proxy)


@app.task(queue="leaky", max_attempts=1)
def leak_in_thread(proxy: Lease = leaky.lease()) -> None:
    local = {"opened": proxy.secret("password")}
    raise KeyError(local["opened"], proxy.url)
