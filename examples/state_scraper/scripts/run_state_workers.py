"""Check everything, show what would be done, and launch the state workers through `pitboss up`, which asks first."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scrape_yp.database import Database
from scrape_yp.proxy_pool import WorkerProxyPool, read_proxies
from scrape_yp.settings import ENV_FILE
from scrape_yp.state_assignments import (
    STATE_ASSIGNMENTS,
    STATES,
    balance,
    get_states_for_worker,
    validate_assignments,
)
from scrape_yp.state_worker_pool import app, browser_program, proxies, settings

APP = "scrape_yp.state_worker_pool:app"
PITBOSS = str(Path(sys.executable).with_name("pitboss"))
# The document's name for the log of the manager.
POOL_LOG, MANAGER_LOG = Path("logs/state_worker_pool.log"), "manager.log"
_TEST_WORKERS = (0, 1)
_RECOMMENDED = 50
_STATUSES = ("planned", "in_progress", "done", "failed")


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    workers = (
        _TEST_WORKERS if asked.test else range(min(asked.workers or settings.worker_count, len(STATE_ASSIGNMENTS)))
    )
    if validate():
        show_assignments(workers)
        show_statistics(workers)
        app.close()
        launch(asked)
    return 1


def launch(asked: argparse.Namespace) -> NoReturn:
    """Become the manager, which shows its plan, asks, and gets Ctrl-C itself."""
    POOL_LOG.parent.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        POOL_LOG.symlink_to(MANAGER_LOG)
    environment = {**os.environ, "PITBOSS_STORE": settings.database_url}
    say("\nPlan")
    os.execve(PITBOSS, [PITBOSS, "up", *_options(asked)], environment)


def validate() -> bool:
    """Print a line for each check; True if all are passed."""
    say("Environment")
    passed = [_passed(check) for check in (_env_file, _assignments, _browser, _database, _proxies)]
    return all(passed)


def _passed(check: Callable[[], str]) -> bool:
    try:
        say(f"  ✓ {check()}")
    except Exception as error:
        say(f"  ✗ {error}")
        return False
    return True


def _env_file() -> str:
    if not ENV_FILE.is_file():
        raise FileNotFoundError(f"{ENV_FILE} is missing: cp .env.example .env")
    return f"{ENV_FILE} is there"


def _assignments() -> str:
    validate_assignments()
    return f"{len(STATE_ASSIGNMENTS)} workers have {sum(map(len, STATE_ASSIGNMENTS.values()))} states"


def _browser() -> str:
    return f"the browser is {browser_program()}"


def _database() -> str:
    app.declare()
    Database(settings.database_url).prepare()
    return f"the database answers; {sum(sum(one.values()) for one in _targets().values()):,} targets are stored"


def _proxies() -> str:
    """Add the proxies of the file to the pool; those that it knows keep their history."""
    if not settings.proxy_file.is_file():
        raise FileNotFoundError(
            f"{settings.proxy_file} is missing: mkdir -p {settings.proxy_file.parent}, and write a proxy per line, as"
            " host:port:user:password (or set PROXY_FILE)"
        )
    found = read_proxies(settings)
    new = proxies.add_many(found)
    fewer = "" if len(found) >= _RECOMMENDED else f"; {_RECOMMENDED} are recommended, 5 per worker"
    return f"{len(found)} proxies in {settings.proxy_file}, {new} of them new{fewer}"


def show_assignments(workers: Sequence[int]) -> None:
    say("\nState assignments")
    for worker in workers:
        states = ", ".join(get_states_for_worker(worker))
        own = WorkerProxyPool(proxies, worker, settings.proxies_per_worker)
        say(f"  Worker {worker}: {states:<24} proxies {own.proxy_indices[0]}-{own.proxy_indices[-1]}, {_usable(own)}")
    if settings.proxy_rotation_enabled:
        say("  PROXY_ROTATION_ENABLED: each target takes the next of all proxies, of its own worker or not")


def _usable(own: WorkerProxyPool) -> str:
    known = own.proxies()
    return f"{sum(one.enabled for one in known)} of {len(known)} enabled"


def show_statistics(workers: Sequence[int]) -> None:
    """Targets by worker and status, and how even the table is."""
    by_state = _targets()
    say(f"\nTargets      {'  '.join(f'{status:>11}' for status in _STATUSES)}")
    for worker in workers:
        say(f"  Worker {worker}   {'  '.join(_columns(_counts(by_state, STATE_ASSIGNMENTS[worker])))}")
    every = _counts(by_state, tuple(by_state))
    say(f"  All states {'  '.join(_columns(every))}")
    if every:
        say(f"  {every['done'] / every.total():.1%} of all targets are done")
    if len(by_state) == len(STATES):
        even = balance({state: counts.total() for state, counts in by_state.items()})
        say(
            f"  The largest worker of the table has {even.by_table:.2f} × the mean; "
            f'with mode="balanced" it would have {even.balanced:.2f} ×'
        )


def _targets() -> dict[str, Counter[str]]:
    return Database(settings.database_url).statistics()


def _counts(by_state: dict[str, Counter[str]], states: Sequence[str]) -> Counter[str]:
    return sum((by_state.get(state, Counter()) for state in states), Counter[str]())


def _columns(counts: Counter[str]) -> Iterator[str]:
    return (f"{counts[status]:>11,}" for status in _STATUSES)


def _options(asked: argparse.Namespace) -> list[str]:
    options = [APP, "--confirm"]
    if asked.test:
        options += ["--only", ",".join(map(str, _TEST_WORKERS))]
    elif asked.workers:
        options += ["--workers", str(asked.workers)]
    return [*options, *(["--yes"] if asked.yes or asked.test else [])]


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) - 1 not in STATE_ASSIGNMENTS:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {len(STATE_ASSIGNMENTS)}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=_number, metavar="N", help="how many; the states of the others wait")
    parser.add_argument("--test", action="store_true", help="only workers 0 and 1, without asking")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    return parser


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
