"""Everything in one command: a directory site, proxies, a database, four workers with browsers, and checks.

On the way a worker is killed, and the site bans the address of a proxy.
"""

import argparse
import json
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from scrape_yp.database import Database
from scrape_yp.state_assignments import get_states_for_worker
from scraper_demo import postgres
from scraper_demo.checks import LIMIT, THRESHOLD, WINDOW, WITHOUT_WORKER, Findings, checks
from scraper_demo.listings import directory
from scraper_demo.processes import HERE, Installation, Killed, Unfinished
from scraper_demo.progress import Table, say
from scraper_demo.proxies import ForwardProxy, forwarding
from scraper_demo.site import Rules, Site, serving

WORKERS, PROXIES = range(4), 8
# The worker that has the last proxies, if proxies are not shared.
BANNED_WORKER, KILLED_WORKER = 3, 1
# When this part of the worker's targets is done, its proxy is banned, or it is killed.
BAN_AT, KILL_AT = 0.1, 0.3
_LOOK = 0.25
_BANNER = "pitboss 0."
_OWN = ("*.db*", "*.log", "*.json", ".env", "pitboss.toml", "logs", "data", ".pitboss")


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    # A shell starts background jobs with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    folder: Path = asked.folder.resolve()
    clear(folder)
    with _database(folder, asked.sqlite) as url:
        found = run(folder, url, asked.states)
    return _summary(found, began)


@contextmanager
def _database(folder: Path, sqlite: bool) -> Iterator[str]:
    if sqlite:
        yield f"sqlite:///{folder / 'scraper.db'}"
        return
    with postgres.serving(folder / "postgres.log") as url:
        yield url


def run(folder: Path, url: str, states_per_worker: int, **settings: object) -> Findings:
    """Generate targets, launch the workers, ban a proxy, kill a worker, and wait for the end."""
    with serving(Site()) as site, forwarding(PROXIES) as proxies:
        say(f"The directory is {site.url}, behind {PROXIES} proxies; the database is {url}. Everything is in {folder}.")
        installed, database = install(folder, url, site, proxies, settings), Database(url)
        states = [state for worker in WORKERS for state in get_states_for_worker(worker)[:states_per_worker]]
        again = _generate(installed, [*states, WITHOUT_WORKER])
        targets = [target for target, _ in database.targets()]
        site.listings = directory(targets)
        forbidden = next(target for target in targets if target.state_id == states[-1])
        site.rules = Rules(limit=12, window=WINDOW, strict={proxies[0].address: 1}, forbidden=forbidden)
        with installed.launched("--workers", str(len(WORKERS))):
            _show_launch(installed)
            killed = _watch(installed, database, site, proxies[-1])
            waiting = next(one["id"] for one in installed.tasks() if one["params"]["state_id"] == WITHOUT_WORKER)
            why = installed.pitboss("why", waiting)["why"]
            tasks, members = installed.tasks(), installed.pitboss("resources", "list", "proxies")["members"]
        statuses = sum(database.statistics().values(), Counter[str]())
        return Findings(
            folder=folder,
            site=site,
            targets=targets,
            again=again,
            tasks=tasks,
            listings=database.listings(),
            statuses=statuses,
            members={one["name"]: one for one in members},
            banned=proxies[-1],
            killed=killed,
            why=why,
            exit_code=installed.exit_code,
        )


def install(
    folder: Path, url: str, site: Site, proxies: Sequence[ForwardProxy], others: Mapping[str, object]
) -> Installation:
    """The folder of an installation, with the settings of this run."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "webshare_proxies.txt").write_text("".join(f"{proxy.line}\n" for proxy in proxies))
    settings = {
        "DATABASE_URL": url,
        "SITE_URL": site.url,
        "WORKER_COUNT": 10,
        "MIN_DELAY_SECONDS": 0.05,
        "MAX_DELAY_SECONDS": 0.2,
        "PROXY_RATE": f"{LIMIT}/{WINDOW:g}s",
        "PROXY_BLACKLIST_THRESHOLD": THRESHOLD,
        "PROXY_COOLDOWN_MINUTES": 0.02,
        "PROXIES_PER_WORKER": PROXIES // len(WORKERS),
        "MAX_TARGET_ATTEMPTS": 10,
        "RETRY_SECONDS": 0.2,
        "PAGE_TIMEOUT_SECONDS": 60,
        **others,
    }
    pool = "PITBOSS_POOLS__STATE_WORKER"
    return Installation(
        folder,
        settings,
        **{f"{pool}__STAGGER": "0s", f"{pool}__RESTART_DELAY": "500ms", "PITBOSS_HTTP__ENABLED": "false"},
    )


def _generate(installed: Installation, states: Sequence[str]) -> str:
    """Generate the targets, twice; returns what the second time printed."""
    command = ("-m", "scrape_yp.generate_city_targets", "--limit", "1", "--states", ",".join(states))
    say(f"\n$ python {' '.join(command)}\n{installed.python(*command)}")
    return installed.python(*command)


def _show_launch(installed: Installation) -> None:
    """Print what the launcher printed before it became the manager."""
    say(f"$ python scripts/run_state_workers.py --yes --workers {len(WORKERS)}")
    installed.until(lambda: _BANNER in installed.log.read_text(), "the manager starts")
    say(installed.log.read_text().partition(_BANNER)[0])


def _watch(installed: Installation, database: Database, site: Site, unlucky: ForwardProxy) -> Killed:
    """Show the states filling up until all targets with a worker have ended; ban a proxy and kill a worker midway."""
    table, killed = Table(WORKERS), list[Killed]()

    def ended() -> bool:
        time.sleep(_LOOK)
        states = {state: counts for state, counts in database.statistics().items() if state != WITHOUT_WORKER}
        every = sum(states.values(), Counter[str]())
        if not site.banned and _share_done(states, BANNED_WORKER) > BAN_AT:
            site.ban(unlucky.address)
            table.tell(f"  (the site bans the address of proxy {unlucky.name})")
        if not killed and _share_done(states, KILLED_WORKER) > KILL_AT:
            killed.append(installed.kill_worker(KILLED_WORKER, site))
            table.tell(
                f"  (worker {KILLED_WORKER}, process {killed[0].pid}, is killed with SIGKILL while it waits for a page)"
            )
        over = every["done"] + every["failed"] == every.total()
        table.show(states, last=over)
        return over

    def count() -> int:
        return sum(counts["done"] + counts["failed"] for counts in database.statistics().values())

    installed.until(ended, "all targets have ended", count)
    return killed[0]


def _share_done(states: Mapping[str, Counter[str]], worker: int) -> float:
    own = sum((states[one] for one in get_states_for_worker(worker) if one in states), Counter[str]())
    return own["done"] / own.total()


def _summary(found: Findings, began: float) -> int:
    left = {"tasks": found.tasks, "members": found.members, "requests": [one._asdict() for one in found.site.arrivals]}
    for name, values in left.items():
        (found.folder / f"{name}.json").write_text(json.dumps(values, indent=1))
    results = list(checks(found))
    say("\nChecks:")
    for text, passed in results:
        say(f"  {'✓' if passed else '✗ FAILED:'} {text}")
    good = sum(passed for _, passed in results)
    say(f"{good} of {len(results)} checks passed in {time.monotonic() - began:.0f} seconds")
    return 0 if good == len(results) else 1


def clear(folder: Path) -> None:
    """Delete the files of an earlier run, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in [path for pattern in _OWN for path in folder.glob(pattern)]:
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink(missing_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sqlite", action="store_true", help="a SQLite file instead of PostgreSQL")
    parser.add_argument("--states", type=int, default=3, help="how many states of each worker have targets, 1 to 5")
    parser.add_argument("--folder", type=Path, default=HERE / "build", help="where the files and the logs go")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (postgres.NoServer, Unfinished) as error:
        sys.exit(str(error))
