"""What must be true at the end: of the results, the tasks, the logs, and of what the site saw."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from scrape_yp.crawl import USER_AGENT, search_url
from scrape_yp.state_assignments import get_states_for_worker
from scrape_yp.yp_filter import Target
from scraper_demo.processes import Killed, alive
from scraper_demo.proxies import ForwardProxy
from scraper_demo.site import Site, most_in_window

# Requests through one proxy, and failures in a row until it is on the blacklist.
LIMIT, WINDOW, THRESHOLD = 8, 4.0, 3
# Its worker, number 4, does not run: its targets wait.
WITHOUT_WORKER = "DC"
_COMPLETED = re.compile(r"✓ Target completed: .* in .*, ([A-Z]{2}), accepted \d+, rejected \d+\Z")
Check = tuple[str, bool]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the run left."""

    folder: Path
    site: Site
    targets: list[Target]
    again: str
    tasks: list[dict[str, Any]]
    listings: list[tuple[str, bool, str]]
    statuses: Counter[str]
    members: Mapping[str, dict[str, Any]]
    banned: ForwardProxy
    killed: Killed
    why: str
    exit_code: int | None

    @property
    def forbidden(self) -> Target:
        assert self.site.rules.forbidden is not None
        return self.site.rules.forbidden


def checks(found: Findings) -> Iterator[Check]:
    """Each check in words, and whether it holds."""
    yield from _of_targets(found)
    yield from _of_results(found)
    yield from _of_the_kill(found)
    yield from _of_proxies(found)
    yield from _of_the_site(found)
    yield from _of_logs(found)
    yield "the manager stopped when it was asked to", found.exit_code == 0


def _of_targets(found: Findings) -> Iterator[Check]:
    waiting = sum(target.state_id == WITHOUT_WORKER for target in found.targets)
    done = len(found.targets) - waiting - 1
    yield "generating the targets again added none", ", 0 of them new" in found.again
    expected = {"done": done, "failed": 1, "planned": waiting}
    yield f"yp_targets: {done} done, 1 failed, {waiting} planned", dict(found.statuses) == expected
    failed = [one for one in found.tasks if one["state"] == "failed"]
    names = [Target(**one["params"]) for one in failed]
    at_once = names == [found.forbidden] and failed[0]["error"]["category"] == "robots" and failed[0]["attempts"] == 1
    yield f"the one that robots.txt forbids failed at once: {found.forbidden}", at_once
    pending = [one for one in found.tasks if one["params"]["state_id"] == WITHOUT_WORKER]
    yield f"{WITHOUT_WORKER} waits for its worker: {found.why}", {one["state"] for one in pending} == {"pending"}


def _of_results(found: Findings) -> Iterator[Check]:
    left_out = [found.forbidden.key, *(one.key for one in found.targets if one.state_id == WITHOUT_WORKER)]
    shown = [entry for key, entries in found.site.listings.items() if key not in left_out for entry in entries]
    wanted = {str(entry.shown["id"]): entry.reason for entry in shown}
    stored = {name: reason for name, _, reason in found.listings}
    twice = len(shown) - len(wanted)
    once = len(found.listings) == len(stored)
    yield f"all {len(wanted)} listings are stored once, {twice} of them were found twice", stored == wanted and once
    accepted = sum(accepted for _, accepted, _ in found.listings)
    right = all(accepted == (not reason) for _, accepted, reason in found.listings)
    yield (
        f"{accepted} are accepted, {len(stored) - accepted} rejected, each for the right reason",
        right and stored == wanted,
    )


def _of_the_kill(found: Findings) -> Iterator[Check]:
    lost = [one for one in found.tasks if one["losses"]]
    own = {one["params"]["state_id"] for one in lost} <= set(get_states_for_worker(found.killed.worker))
    again = len(lost) == 1 and own and lost[0]["state"] == "completed"
    yield "the target of the killed worker was run again, by the worker that replaced it", again
    gone = not any(map(alive, (found.killed.pid, *found.killed.children)))
    yield f"the {len(found.killed.children)} processes of its browser are gone", gone and bool(found.killed.children)
    pages = Counter(one.url for one in found.site.arrivals if one.kind == "page")
    again_shown = [url for url, times in pages.items() if times > 1]
    yield f"no page that was stored was asked for again ({len(pages)} pages)", len(again_shown) <= 1


def _of_proxies(found: Findings) -> Iterator[Check]:
    member = found.members[found.banned.name]
    refused = [
        one for one in found.site.arrivals if one.address == found.banned.address and one.status == HTTPStatus.FORBIDDEN
    ]
    out = member["condition"] == "blacklisted" and len(refused) == THRESHOLD
    yield f"the banned proxy was tried {len(refused)} times, and is on the blacklist", out
    used = {one.address for one in found.site.arrivals if one.kind == "page"}
    yield f"all {len(found.members)} proxies were used", len(used) == len(found.members)
    captchas = sum(one.kind == "captcha" for one in found.site.arrivals)
    yield f"{captchas} captchas were shown, and none was taken for a page without listings", captchas > 0


def _of_the_site(found: Findings) -> Iterator[Check]:
    arrivals = sorted(found.site.arrivals)
    most = max(most_in_window(arrivals, WINDOW).values())
    yield f"no proxy sent more than {LIMIT} requests in any {WINDOW:g} s (most: {most})", most <= LIMIT
    pauses = [one for one in arrivals if one.retry_after]
    early = [
        later
        for one in pauses
        for later in arrivals
        if later.address == one.address and one.at < later.at < one.at + one.retry_after
    ]
    yield f"after each of {len(pauses)} 429s, the proxy rested for its Retry-After", bool(pauses) and not early
    forbidden = search_url("", found.forbidden, 1).rpartition("&")[0]
    inside = [one for one in arrivals if one.url.startswith((forbidden, "/private"))]
    yield "nothing that robots.txt forbids was asked for", not inside
    yield "every request had our name", {one.agent for one in arrivals} == {USER_AGENT}


def _of_logs(found: Findings) -> Iterator[Check]:
    folder = found.folder / "logs"
    events = {int(path.stem.rpartition("_")[2]): _events(path) for path in folder.glob("state_worker_[0-9].log")}
    states = {
        worker: [match[1] for text in lines if (match := _COMPLETED.match(text))] for worker, lines in events.items()
    }
    own = all(set(seen) <= set(get_states_for_worker(worker)) for worker, seen in states.items())
    total = sum(map(len, states.values()))
    told = own and total == found.statuses["done"]
    yield f"each of {len(states)} logs has only its worker's states: {total} × ✓ Target completed", told
    final = [worker for worker, lines in events.items() if f"Worker {worker} final statistics" in " ".join(lines)]
    yield "each worker logged its final statistics", sorted(final) == sorted(states) and bool(final)
    pool = folder / "state_worker_pool.log"
    yield "logs/state_worker_pool.log has the manager's lines", pool.is_file() and pool.stat().st_size > 0
    uses = (folder / "proxy_pool.log").read_text() if (folder / "proxy_pool.log").is_file() else ""
    yield "logs/proxy_pool.log has each target that was done", uses.count(" done\n") >= found.statuses["done"] > 0


def _events(path: Path) -> list[str]:
    return [str(json.loads(line)["event"]) for line in path.read_text().splitlines()]
