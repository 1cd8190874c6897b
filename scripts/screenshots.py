"""Pictures of every page of the dashboard, for the documentation: `make screenshots`. The stores are those of
tests/http/web/shop.py.

    python -m scripts.screenshots                   every page, into docs/pictures
    python -m scripts.screenshots overview tasks    only these
    python -m scripts.screenshots --faults FOLDER   the overviews of ten faults under numbers; FOLDER-key.txt names them
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from pitboss.http.gate import GateRules
from pitboss.model.duration import SECOND
from scripts.camera import LOOKS, Look, chromium, looking, take
from tests.http.site import Site
from tests.http.web import scenes, shop, shop_more
from tests.http.web.load import Scene
from tests.http.web.test_ten_faults import FAULTS

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
# Pages that are shown whole.
TALL = {"overview": 1760, "overview-ok": 1420}
RULES = GateRules(local=True, environment="production")
Make = Callable[[], Awaitable[Scene]]


@contextmanager
def served(make: Make) -> Iterator[tuple[Site, Scene]]:
    async def build() -> Scene:
        return await make()

    scene = asyncio.run(build())
    with Site(RULES, wrap=lambda _: scene.store) as site:
        site.server.release = "1.14.0"
        site.store = scene.store
        yield site, scene


def shoot(
    make: Make, places: Callable[[Scene], dict[str, str]], folder: Path, looks: Sequence[Look], only: set[str]
) -> None:
    # The pages that are wanted are known when the scene is there.
    with served(make) as (site, scene), chromium() as browser:
        for look in looks:
            with looking(browser, site.url, look, scene.now / SECOND) as page:
                for name, path in places(scene).items():
                    if not only or name in only:
                        file = folder / f"{name}-{look.name}.webp"
                        most = TALL.get(name) if look.size == "wide" else None
                        take(page, f"{site.url}/ui{path}", look, file, most=most)


def shoot_faults(folder: Path) -> None:
    """The answers stand beside the folder, not in it."""
    names = list(FAULTS)
    Random(1).shuffle(names)
    look = LOOKS[0]
    for place, name in enumerate(names, start=1):
        with (
            served(FAULTS[name].seed) as (site, scene),
            chromium() as browser,
            looking(browser, site.url, look, scene.now / SECOND) as page,
        ):
            take(page, f"{site.url}/ui", look, folder / f"{place:02}.png", most=TALL["overview"])
    key = "".join(f"{place:02} {name}\n" for place, name in enumerate(names, start=1))
    folder.with_name(f"{folder.name}-key.txt").write_text(key)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, default=PICTURES)
    asked.add_argument("--look", action="append", choices=[one.name for one in LOOKS], help="only this one")
    asked.add_argument("--faults", type=Path, metavar="FOLDER", help="take those of the ten faults instead")
    asked.add_argument("pages", nargs="*")
    given = asked.parse_args()
    if given.faults:
        shoot_faults(given.faults)
        return
    looks = [one for one in LOOKS if one.name in (given.look or one.name)]
    for make, places in STAGES:
        shoot(make, places, given.out, looks, set(given.pages))


def _more(scene: Scene) -> dict[str, str]:
    """All other pages."""
    at = scene.places
    return {
        "tasks": "/tasks?q=state:failed+finished:<1h",
        "task": f"/tasks/{at['task']}",
        "task-failed": f"/tasks/{at['failed']}",
        "batch": f"/batches/{at['catalogue-full']}",
        "batches": "/batches",
        "queues": "/queues",
        "queue": "/queues/scrape",
        "workers": "/workers",
        "pool": "/pools/scrapers",
        "worker": f"/workers/{scene.sessions['box1']}/scrapers-3",
        "resources": "/resources/proxies",
        "resource-pools": "/resources",
        "member": "/resources/proxies/p-17",
        "partitions": "/partitions",
        "partition": "/partitions/states",
        "schedules": "/schedules",
        "schedule": "/schedules/refresh-prices",
        "events": "/events",
        "event": f"/events/{at['event']}",
        "sources": "/sources",
        "failures": "/failures",
        "failure": "/failures/403403ab12cd",
        "activity": "/activity",
        "alerts": "/alerts",
        "operations": "/operations",
        "operation": f"/operations/{at['operation']}",
        "system": "/system",
    }


STAGES: tuple[tuple[Make, Callable[[Scene], dict[str, str]]], ...] = (
    (scenes.nothing, lambda _: {"overview-empty": ""}),
    (shop.healthy, lambda _: {"overview-ok": ""}),
    (shop.degraded, lambda _: {"overview": ""}),
    (shop_more.degraded, _more),
)


if __name__ == "__main__":
    main()
