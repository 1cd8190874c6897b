"""Everything in one command: a stand-in site, its proxies, `pitboss up`, three batches, and their results."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from story_checker.database import Database
from story_checker.settings import AT_START, SystemSettings, WrongSetting, database_path
from story_checker.stand_in.audit import Figures, audit
from story_checker.stand_in.forward import ForwardProxy
from story_checker.stand_in.site import HouseRules
from story_checker.stand_in.world import World, password_of, user_of

HERE = Path(__file__).resolve().parent.parent
PITBOSS = Path(sys.executable).with_name("pitboss")
NICHES = ("cooking", "hiking", "pottery")
PROFILES = 30
PROXIES = 5
TROUBLE_AFTER, TROUBLE_SECONDS = 25, 8.0
# An hour has ten seconds here, so that you see limits reached and lifted.
SETTINGS = SystemSettings(
    max_threads=4,
    proxy_hourly_limit=10,
    default_batch_size=PROFILES + 1,
    proxy_min_delay=0.2,
    proxy_cooldown=2.0,
    proxy_blacklist=3.0,
    session_life=12.0,
    auto_trigger_enabled=False,
    notifications_enabled=True,
    hour=10.0,
)
# The site is stricter with one address, and sessions live a little longer than we assume.
RULES = HouseRules(limit=12, window=SETTINGS.hour, session_life=14.0, strict={"127.0.0.15": 6})


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    if asked.command is not None:
        return settings_command(asked)
    # A shell starts background jobs with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    folder: Path = asked.folder.resolve()
    _clear(folder)
    with World(RULES, proxies=PROXIES) as world:
        environment = furnish(world, folder, asked.profiles)
        say(f"The site is {world.site.url}, with {PROXIES} proxies on ports of loopback. Everything is in {folder}.")
        say("In a second terminal:")
        for name in ("STORY_CHECKER_DB", "PITBOSS_STORE", "PITBOSS_LOGS"):
            say(f"  export {name}={environment[name]}")
        with manager(environment, folder), trouble(world):
            code = show(environment, world, forever=asked.stay)
        (folder / "arrivals.jsonl").write_text("".join(f"{json.dumps(one._asdict())}\n" for one in world.site.arrivals))
        said = Database(folder / "story_checker.db").outbox()
        say(f"\nNotices to the operator: {len(said)}")
        for _, subject, body in said:
            say(f"  {subject} ({body})")
        return summary(world) or code


def settings_command(asked: argparse.Namespace) -> int:
    """Show the settings, or change one."""
    database = Database(database_path())
    system = SystemSettings.load(database)
    if asked.act != "set":
        say(f"{'SETTING':<22} {'VALUE':<24} COUNTS FROM")
        for name, value in asdict(system).items():
            say(f"{name:<22} {json.dumps(value):<24} {_counts_from(name)}")
        return 0
    try:
        changed = system.changed(asked.name, asked.value)
    except WrongSetting as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    changed.save(database)
    say(f"{asked.name} is {json.dumps(getattr(changed, asked.name))}; it counts from {_counts_from(asked.name)} on")
    return 0


def _counts_from(name: str) -> str:
    return "the next start or reload (kill -HUP)" if name in AT_START else "the next minute"


def furnish(world: World, folder: Path, profiles: int) -> dict[str, str]:
    """Fill the site and the database; returns the environment variables that point to both."""
    database = Database(folder / "story_checker.db")
    for niche in NICHES:
        names = [f"{niche}_{number:02}" for number in range(1, profiles + 1)]
        world.site.profiles |= {name: number % 3 for number, name in enumerate(names)}
        database.add_niche(niche)
        database.import_profiles(niche, names)
    # The site does not know this one: its check fails, and no proxy is blamed.
    database.import_profiles(NICHES[0], [f"{NICHES[0]}_gone"])
    replace(SETTINGS, site=world.site.url).save(database)
    return {
        **os.environ,
        "STORY_CHECKER_DB": str(database.path),
        "PITBOSS_STORE": f"sqlite:///{folder / 'pitboss.db'}",
        "PITBOSS_LOGS": str(folder / "logs"),
    }


@contextmanager
def manager(environment: dict[str, str], folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs `pitboss up` until the end of the block."""
    with (folder / "manager.log").open("wb") as log:
        process = subprocess.Popen([PITBOSS, "up"], cwd=HERE, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@contextmanager
def trouble(world: World) -> Iterator[None]:
    """After some requests, proxy 4 goes down for a while, and the site ends the sessions of proxy 2."""
    over = threading.Event()

    def happen() -> None:
        while len(world.site.arrivals) < TROUBLE_AFTER:
            if over.wait(0.1):
                return
        say("(proxy-4 is down, and the site ends the session of proxy-2)")
        world.do(world.proxies[3].server.stop())
        world.site.end_sessions(world.proxies[1].exit_address)
        over.wait(TROUBLE_SECONDS)
        world.do(world.proxies[3].server.start())
        say("(proxy-4 is up again)")

    thread = threading.Thread(target=happen, name="trouble")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def show(environment: dict[str, str], world: World, *, forever: bool) -> int:
    """Add the proxies, create the batches and watch them; see `story_checker.show`."""
    command = [sys.executable, "-m", "story_checker.show", *(["--forever"] if forever else [])]
    members = json.dumps([member(proxy) for proxy in world.proxies])
    try:
        return subprocess.run(command, cwd=HERE, env=environment, input=members, text=True, check=False).returncode
    except KeyboardInterrupt:
        say("\nstopping")
        return 0


def member(proxy: ForwardProxy) -> dict[str, Any]:
    """A proxy and its account at the site, as one member of the pool."""
    return {
        "name": proxy.name,
        "fields": {"url": proxy.url, "user": proxy.user, "account": user_of(proxy), "exit": proxy.exit_address},
        "secrets": {"password": proxy.password, "account_password": password_of(proxy)},
    }


def summary(world: World) -> int:
    """Print what the site's own log says about each address."""
    limit, window = SETTINGS.proxy_hourly_limit, SETTINGS.hour
    figures = audit(world.site.arrivals, limit=limit, window=window)
    say(f"\nRequests by the site's own log; the limit is {limit} in any {window:g} seconds:")
    say("  proxy     address      requests  refused (429)  most in a window  violations")
    for proxy in world.proxies:
        seen = figures.get(proxy.exit_address, Figures())
        say(
            f"  {proxy.name:<9} {proxy.exit_address:<12} {seen.requests:>8}  {seen.refused:>13}"
            f"  {f'{seen.most} of {limit}':>16}  {seen.violations:>10}"
        )
    violations = sum(seen.violations for seen in figures.values())
    strangers = sum(not arrival.agent.startswith("StoryChecker/") for arrival in world.site.arrivals)
    say(f"  {violations} violations; {strangers} requests without our name")
    return 1 if violations or strangers else 0


def _clear(folder: Path) -> None:
    """Delete the files of an earlier run, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in [*folder.glob("*.db*"), *folder.glob("*.log"), folder / "logs"]:
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="story_checker", description=__doc__)
    parser.add_argument("--stay", action="store_true", help="go on with new batches until Ctrl-C")
    parser.add_argument("--profiles", type=int, default=PROFILES, help="how many each niche has")
    parser.add_argument("--folder", type=Path, default=HERE / "build", help="where the stores and logs go")
    commands = parser.add_subparsers(dest="command", title="instead of the demo")
    settings = commands.add_parser("settings", help="show or set what an operator can set, in STORY_CHECKER_DB")
    acts = settings.add_subparsers(dest="act")
    acts.add_parser("show", help="all settings and their values")
    act = acts.add_parser("set", help="change one")
    act.add_argument("name")
    act.add_argument("value")
    return parser


if __name__ == "__main__":
    sys.exit(main())
