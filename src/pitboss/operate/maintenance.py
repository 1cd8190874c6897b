"""Is the store sound, and how is it copied? None of this needs an open store."""

from collections.abc import Callable
from pathlib import Path

from pitboss.engines.capabilities import capabilities
from pitboss.engines.protocol import Maintenance
from pitboss.model.errors import InvalidInput, Refused, StoreDamaged, StoreUnavailable, Unsupported
from pitboss.model.finding import Finding, Grade

# What a start may cost: a file of some hundred megabytes is read in that time.
START_SECONDS = 1.0


async def check_content(
    store: object, *, seconds: float | None = None, full: bool = False, counts: bool = True
) -> list[Finding]:
    """Findings about damage; none for a store that cannot be damaged."""
    maintenance = capabilities(store).maintenance
    return [] if maintenance is None else await maintenance.check(seconds=seconds, full=full, counts=counts)


async def refuse_damage(store: object) -> None:
    """A short look before a manager starts: writing into a damaged store may make it worse."""
    try:
        findings = await check_content(store, seconds=START_SECONDS, counts=False)
    except StoreUnavailable:
        return  # opening it says why, and waits longer
    for found in findings:
        if found.check == "content" and found.grade is Grade.PROBLEM:
            raise StoreDamaged(found.what, why=found.why, fix=found.fix)


async def recount(store: object) -> int:
    """Write the numbers of tasks that a recount gives; returns how many were wrong."""
    return await _maintenance(store).recount()


async def back_up(
    store: object, to: Path, told: Callable[[int, int], None], *, force: bool = False, salvage: bool = False
) -> str:
    """Copy the store into a file while it is in use; returns how to restore it. The file appears when it is whole."""
    draft = _draft(to, force=force)
    how = await _maintenance(store).backup(draft, told, salvage=salvage)
    draft.replace(to)
    return how


def _draft(to: Path, *, force: bool) -> Path:
    """The file to write first, readable only by its owner: a store has parameters and results."""
    if to.exists() and not force:
        raise Refused(f"{to} exists", why="a backup does not overwrite a file", fix="name another file, or add --force")
    if to.is_dir() or not to.parent.is_dir():
        what = "is a folder" if to.is_dir() else "cannot be created: its folder does not exist"
        raise InvalidInput(f"{to} {what}", why="a backup is one file", fix="name a file in a folder that exists")
    draft = to.with_name(f".{to.name}.part")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    return draft


def _maintenance(store: object) -> Maintenance:
    found = capabilities(store).maintenance
    if found is None:
        raise Unsupported(
            "this store cannot be checked or copied", why="it keeps everything in memory", fix="name a SQL store"
        )
    return found
