"""The looks that `pitboss doctor` takes, one after the other; what cannot be looked at is itself a finding."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pitboss.cli.words import counted, masked
from pitboss.model import checkup
from pitboss.model.errors import PitbossError
from pitboss.model.finding import Finding, Grade, fine, problem, warning
from pitboss.model.fleet import Managed, managers

if TYPE_CHECKING:
    from pitboss.config import Loaded
    from pitboss.engines.protocol import Store
    from pitboss.worker.describe import Description

_SECONDS = 30.0
_ENDLESS = 2**31


def of_settings(store: str | None) -> "tuple[Loaded | None, list[Finding]]":
    """The settings, if they can be used, and what is to be said about them."""
    from pitboss import config

    try:
        found = config.loaded({"store": store})
    except PitbossError as error:
        return None, [_refused("settings", error)]
    where = f"in {found.folder}" if found.folder else "none here: the defaults hold"
    notes = [
        warning("settings", note, why="it is not obeyed", fix="correct its name, or remove it") for note in found.notes
    ]
    return found, [fine("settings", f"settings {where}"), *notes]


def of_app(found: "Loaded") -> "tuple[Description | None, list[Finding]]":
    """The app that the settings name, if it can be loaded."""
    from pitboss.cli.describing import described

    target = found.settings.app
    if target is None:
        return None, [fine("app", "no app is named here; pitboss up would need one")]
    folder = found.folder if found.origins["app"].startswith("file") else None
    try:
        description = described(target, folder=folder)
    except PitbossError as error:
        return None, [_refused("app", error)]
    about = fine("app", f"{target.rsplit('/', 1)[-1]} has {counted(len(description.handlers), 'task')}")
    if description.store is None or found.origins["store"] != "default":
        return description, [about]
    return description, [
        about,
        warning(
            "app",
            f"the store is named only in code: {masked(description.store)}",
            why="commands other than pitboss up do not load the code, and look at another store",
            fix="put it into pitboss.toml as store = …",
        ),
    ]


def of_host(found: "Loaded", description: "Description | None") -> list[Finding]:
    """What this machine allows a manager with these settings: open files, and memory."""
    import resource

    from pitboss import config
    from pitboss.cli.staffing import staffed
    from pitboss.manager.vitals import host_memory

    try:
        pools = staffed(found, description) if description else config.pools(found.settings)
    except PitbossError as error:
        return [_refused("pools", error)]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft if soft != resource.RLIM_INFINITY else _ENDLESS
    workers = sum(pool.max_workers for pool in pools)
    return [checkup.files(limit, workers), *checkup.memory(pools, found.settings.host_memory or host_memory())]


async def of_store(found: "Loaded", release: str) -> list[Finding]:
    """Everything that the store can tell, within a time limit."""
    url = found.settings.store
    try:
        async with asyncio.timeout(_SECONDS):
            return await _of_store(found, release)
    except PitbossError as error:
        return [_refused("store", error)]
    except TimeoutError:
        return [
            problem(
                "store",
                f"{masked(url)} did not answer within {_SECONDS:g} s",
                why="it is overloaded, or somebody holds it",
                fix="look for long transactions and locks",
            )
        ]


async def _of_store(found: "Loaded", release: str) -> list[Finding]:
    from pitboss.cli.store import opened

    url = found.settings.store
    schema = await _of_schema(url)
    if schema is not None and schema.grade is not Grade.OK:
        return [schema]
    engine = await opened(url, create=False)
    try:
        about = fine("store", f"{masked(url)} opens")
        return [about, *([schema] if schema else await _own_schema(engine)), *await _inside(engine, found, release)]
    finally:
        await engine.close()


async def _of_schema(url: str) -> Finding | None:
    """A server is asked before it is opened, because opening upgrades it. A file is upgraded by every command."""
    from pitboss import wiring
    from pitboss.engines.capabilities import capabilities

    engine = wiring.make_engine(url)
    store = capabilities(engine).schema
    if engine.name == "sqlite" or store is None:
        return None
    try:
        have, want = await store.schema_version()
    finally:
        await engine.close()
    return _schema(have, want)


async def _own_schema(engine: "Store") -> list[Finding]:
    from pitboss.engines.capabilities import capabilities

    store = capabilities(engine).schema
    return [] if store is None else [_schema(*await store.schema_version())]


def _schema(have: int, want: int) -> Finding:
    said = f"schema {have} of {want}"
    if have == want:
        return fine("schema", said)
    if have > want:
        return problem(
            "schema", said, why="a newer release of Pitboss has upgraded the store", fix="upgrade Pitboss on this host"
        )
    why = "the store has no tables yet" if not have else "the store is of an older release"
    return problem("schema", said, why=why, fix="pitboss db upgrade; a manager does the same when it starts")


async def _inside(engine: "Store", settings: "Loaded", release: str) -> list[Finding]:
    from pitboss import wiring
    from pitboss.cli.status import held_by_handler
    from pitboss.engines.capabilities import capabilities

    clock = wiring.SystemClock()
    diagnosis = capabilities(engine).diagnosis
    found = [] if diagnosis is None else await diagnosis.diagnose(clock)
    queues, sessions = await engine.queues(), await engine.sessions()
    scene = checkup.Scene(
        sessions=sessions,
        queues=queues,
        handlers=await engine.handlers(),
        held=await held_by_handler(engine, queues),
        release=release,
    )
    now = clock.now()
    return [*found, *checkup.of_store(scene, now), *_logs(managers(sessions, now), settings.settings.logs)]


def _logs(fleet: Sequence[Managed], usual: str) -> list[Finding]:
    """Room in the log folders of this host's managers: those of others are not for us to see. If none tells, in the one
    that the settings name, once somebody has logged there."""
    import shutil
    import socket

    told = {one.told.logs for one in fleet if one.told.logs and one.host == socket.gethostname()}
    found = []
    for folder in sorted(told) or [usual] * Path(usual).is_dir():
        try:
            usage = shutil.disk_usage(folder)
        except OSError as error:
            why = error.strerror or str(error)
            found.append(problem("logs", f"{folder} cannot be used", why=why, fix="create it, or correct its rights"))
        else:
            found.append(checkup.room("logs", folder, usage.free, usage.total))
    return found


def _refused(check: str, error: PitbossError) -> Finding:
    return problem(check, error.what, why=error.why, fix=error.fix)
