"""`pitboss doctor`: checks settings, app, host, store and managers; a check that cannot run is itself a problem."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pitboss.cli.command import JsonOption, StoreOption, now, opened, screen_of
from pitboss.cli.errors import Exit
from pitboss.cli.screen import Screen
from pitboss.model import host_findings
from pitboss.model.errors import InvalidInput, PitbossError, StoreDamaged
from pitboss.model.finding import Finding, Grade, fine, problem, warning
from pitboss.model.text import counted, masked

if TYPE_CHECKING:
    from pitboss.config import Loaded
    from pitboss.engines.protocol import Store
    from pitboss.model.fleet import ManagerView
    from pitboss.worker.describe import Description

_WIDTH = 12
_STYLES = {Grade.OK: "green", Grade.WARNING: "yellow", Grade.PROBLEM: "bold red"}
_SECONDS = 30.0
_CHECK_SECONDS = 5.0
_ENDLESS = 2**31


def doctor(context: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check for problems.

    \b
    Examples:
      pitboss doctor
      pitboss doctor --store postgresql://user@host/jobs --json

    Checks settings, app, store, host and managers. Exits with 6 if there is a problem; warnings alone do not.
    """
    from pitboss.operate.documents import findings_document

    screen = screen_of(context)
    findings = _findings(store)
    if as_json:
        screen.document(findings_document(findings))
    else:
        draw_findings(screen, findings)
    exit_if_problem(findings)


def exit_if_problem(findings: Sequence[Finding]) -> None:
    if any(finding.grade is Grade.PROBLEM for finding in findings):
        raise typer.Exit(Exit.UNHEALTHY)


def _findings(store: str | None) -> list[Finding]:
    from importlib import metadata

    found, findings = _of_settings(store)
    if found is None:
        return findings
    description, about = _of_app(found)
    inside = asyncio.run(_of_store(found, description, metadata.version("pitboss")))
    return [*findings, *about, *_of_host(found, description), *inside]


def _of_settings(store: str | None) -> "tuple[Loaded | None, list[Finding]]":
    """The settings, if they can be used."""
    from pitboss import config

    try:
        found = config.loaded({"store": store})
    except PitbossError as error:
        return None, [_refused("settings", error)]
    where = f"in {found.folder}" if found.folder else "none here: the defaults apply"
    notes = [
        warning("settings", note, why="it has no effect", fix="correct its name, or remove it") for note in found.notes
    ]
    return found, [fine("settings", f"settings {where}"), *notes]


def _of_app(found: "Loaded") -> "tuple[Description | None, list[Finding]]":
    """The app that the settings name, if it can be loaded."""
    from pitboss.cli.app_description import described

    target = found.settings.app
    if target is None:
        return None, [fine("app", "no app is named here; pitboss up needs one")]
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
            why="only pitboss up loads the code; other commands use another store",
            fix="put it into pitboss.toml as store = …",
        ),
    ]


def _of_host(found: "Loaded", description: "Description | None") -> list[Finding]:
    """Open files and memory for a manager with these settings."""
    import resource

    from pitboss import config
    from pitboss.cli.up_pools import chosen_pools
    from pitboss.manager.host_memory import total_memory

    try:
        pools = chosen_pools(found, description) if description else config.pools(found.settings)
    except PitbossError as error:
        return [_refused("pools", error)]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft if soft != resource.RLIM_INFINITY else _ENDLESS
    workers = sum(pool.max_workers for pool in pools)
    memory = found.settings.host_memory or total_memory()
    return [host_findings.open_files(limit, workers), *host_findings.memory_limits(pools, memory)]


async def _of_store(found: "Loaded", description: "Description | None", release: str) -> list[Finding]:
    """Every check of the store, within a time limit."""
    url = found.settings.store
    content: list[Finding] = []
    try:
        async with asyncio.timeout(_SECONDS):
            content = await _content(url)
            return [*await _store_checks(found, description, release), *content]
    except PitbossError as error:
        told = isinstance(error, StoreDamaged) and any(one.grade is Grade.PROBLEM for one in content)
        return content if told else [_refused("store", error), *content]
    except TimeoutError:
        return [
            *content,
            problem(
                "store",
                f"{masked(url)} did not answer within {_SECONDS:g} s",
                why="it is overloaded, or another process locks it",
                fix="look for long transactions and locks",
            ),
        ]


async def _store_checks(found: "Loaded", description: "Description | None", release: str) -> list[Finding]:
    from pitboss import wiring
    from pitboss.operate.status import check_store
    from pitboss.operate.workers import read_managers

    url = found.settings.store
    schema = await _schema_before_opening(url)
    if schema is not None and schema.grade is not Grade.OK:
        return [schema]
    engine = await opened(url, create=False)
    try:
        about = fine("store", f"{masked(url)} opens")
        checked = await check_store(engine, wiring.SystemClock(), release)
        managers = (await read_managers(engine, now(engine))).living
        schemas = [schema] if schema else await _own_schema(engine)
        logs = _logs(managers, found.settings.logs)
        alerts = await _alerts(engine, found, description, managers)
        return [about, *schemas, *checked, *await _keys(engine, found), *logs, *alerts]
    finally:
        await engine.close()


async def _alerts(
    engine: "Store", found: "Loaded", description: "Description | None", managers: "Sequence[ManagerView]"
) -> list[Finding]:
    """Settings of alerts that a manager refuses, and names in them that neither the app nor the store has."""
    from pitboss import config
    from pitboss.cli.http_options import alerts_of
    from pitboss.engines.capabilities import capabilities
    from pitboss.model.fleet import worker_pools
    from pitboss.model.queue import is_reserved
    from pitboss.operate.alert_settings import undeclared_functions, unknown_names

    try:
        spec = alerts_of(found)
    except PitbossError as error:
        return [_refused("settings", error)]
    handlers = [*await engine.handlers(), *(description.handlers if description else ())]
    queues = {one.name for one in await engine.queues()} | {one.queue for one in handlers}
    pools = {one.name for one in config.pools(found.settings)} | {one.pool.name for one in worker_pools(managers)}
    known = {
        "queue": {one for one in queues if not is_reserved(one)},
        "worker pool": pools | {one.name for one in (description.pools if description else ())},
        "handler": {one.name for one in handlers if not is_reserved(one.name)},
    }
    has = capabilities(engine)
    if has.schedules is not None:
        known["schedule"] = {one.spec.name for one in await has.schedules.schedules()}
        known["schedule"] |= {one.name for one in (description.declared.schedules if description else ())}
    if has.resources is not None:
        known["resource pool"] = {one.name for one in await has.resources.resource_pools()}
        known["resource pool"] |= {one.name for one in (description.resources if description else ())}
    return [*undeclared_functions(spec, handlers), *unknown_names(spec, known)]


async def _content(url: str) -> list[Finding]:
    """Damage. Before opening, which may fail on a damaged file."""
    from pitboss import wiring
    from pitboss.operate.maintenance import check_content

    engine = wiring.make_engine(url)
    try:
        found = await check_content(engine, seconds=_CHECK_SECONDS, counts=False)
        # Which schema it has is a check of its own.
        return [one for one in found if one.check != "schema"]
    finally:
        await engine.close()


async def _keys(engine: "Store", found: "Loaded") -> list[Finding]:
    from pitboss import config
    from pitboss.operate.status import check_keys
    from pitboss.secrets import KeyRing

    ring = KeyRing(config.secret_keys(), config.key_file(found))
    try:
        return await check_keys(engine, ring.names(), ring.where, now(engine))
    except InvalidInput as error:
        return [_refused("keys", error)]


async def _schema_before_opening(url: str) -> Finding | None:
    """Opening a server would upgrade it, so its schema is read before. Every command upgrades a SQLite file."""
    from pitboss import wiring
    from pitboss.engines.capabilities import capabilities

    engine = wiring.make_engine(url)
    schema = capabilities(engine).schema
    if engine.name == "sqlite" or schema is None:
        return None
    try:
        have, want = await schema.schema_version()
    finally:
        await engine.close()
    return _schema(have, want)


async def _own_schema(engine: "Store") -> list[Finding]:
    from pitboss.engines.capabilities import capabilities

    schema = capabilities(engine).schema
    return [] if schema is None else [_schema(*await schema.schema_version())]


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


def _logs(managers: "Sequence[ManagerView]", usual: str) -> list[Finding]:
    """Space in the log folders of this host's managers. Without managers here, in the folder that the settings name,
    if it exists."""
    import shutil
    import socket

    named = {one.snapshot.logs for one in managers if one.snapshot.logs and one.host == socket.gethostname()}
    findings = []
    for folder in sorted(named) or [usual] * Path(usual).is_dir():
        try:
            usage = shutil.disk_usage(folder)
        except OSError as error:
            why = error.strerror or str(error)
            fix = "create it, or correct its permissions"
            findings.append(problem("logs", f"{folder} cannot be used", why=why, fix=fix))
        else:
            findings.append(host_findings.disk_space("logs", folder, usage.free, usage.total))
    return findings


def _refused(check: str, error: PitbossError) -> Finding:
    return problem(check, error.what, why=error.why, fix=error.fix)


def draw_findings(screen: Screen, findings: Sequence[Finding]) -> None:
    for finding in findings:
        first, *more = finding.what.split("\n")
        screen.line(f"{finding.grade:<8} {finding.check:<{_WIDTH}} {first}", _STYLES[finding.grade])
        for line in more:
            screen.line(f"{'':<{_WIDTH + 9}} {line}")
        for label, text in (("why", finding.why), ("fix", finding.fix)):
            if text:
                screen.line(f"{'':<{_WIDTH + 9}} {label}: {text}")
    counts = Counter(finding.grade for finding in findings)
    screen.line()
    screen.line(
        f"{counted(len(findings), 'check')}: {counted(counts[Grade.PROBLEM], 'problem')}, "
        f"{counted(counts[Grade.WARNING], 'warning')}"
    )
