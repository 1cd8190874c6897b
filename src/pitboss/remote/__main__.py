"""`python -m pitboss.remote module:Class` runs a worker; `file.py:Class` too."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from pitboss.remote.base import BaseWorker
from pitboss.remote.errors import ConfigError

USAGE = "usage: python -m pitboss.remote MODULE:CLASS [flags], such as worker.py:YouTubeWorker --debug"


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith("-"):
        sys.stderr.write(f"{USAGE}\nThe flags of a worker: python -m pitboss.remote MODULE:CLASS --help\n")
        return 0 if "--help" in argv or "-h" in argv else 2
    try:
        worker = find(argv[0])
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return worker.main(argv[1:])


def find(target: str) -> type[BaseWorker]:
    """The class that `module:Class` or `file.py:Class` names. Without a name, the only worker of the module."""
    place, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    module = _load(place)
    found = [
        one for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, BaseWorker) and one.__module__ == module.__name__
    ]  # fmt: skip
    names = ", ".join(one.__name__ for one in found) or "none"
    if not name and len(found) == 1:
        return found[0]
    chosen = getattr(module, name, None) if name else None
    if not isinstance(chosen, type) or not issubclass(chosen, BaseWorker):
        what = f'there is no worker "{name}" in {place}' if name else f"{place} has not exactly one worker"
        raise ConfigError(what, why=f"its workers are: {names}", fix=f"name a subclass of Worker: {place}:CLASS")
    return chosen


def _load(place: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            path = Path(place)
            sys.path.insert(0, str(path.parent.resolve()))
            return importlib.import_module(path.stem)
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    except ImportError as error:
        fix = "pass a file, such as worker.py, or a module that Python finds from here, such as jobs.worker"
        raise ConfigError(f"cannot load {place}", why=str(error), fix=fix) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
