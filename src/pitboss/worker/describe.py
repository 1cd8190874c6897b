"""A short-lived child process that describes an app as data, so that the manager never imports the user's code."""

import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterator
from hashlib import blake2b
from pathlib import Path

import msgspec

from pitboss.model.declared import Declared
from pitboss.model.errors import PitbossError
from pitboss.model.pool_keys import DeclaredPool
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource_keys import DeclaredResources
from pitboss.worker.app_loading import load_app


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager needs to know about an app, or the error that prevented it, with the error's code. `release` is a
    digest of the app's code."""

    handlers: list[HandlerInfo] = []
    hooks: list[str] = []
    pools: list[DeclaredPool] = []
    resources: list[DeclaredResources] = []
    declared: Declared = Declared(app="app")
    store: str | None = None
    release: str = ""
    error: str | None = None
    code: str = ""
    traceback: str | None = None


def described(target: str) -> Description:
    """The app's description; an error while loading it becomes part of it."""
    before = set(sys.modules)
    try:
        app = load_app(target)
        app.hooks.check(app.handlers)
        pools = list(app.pools.values())
        resources = [pool.declared for pool in app.resource_pools.values()]
        return Description(
            handlers=app.describe(),
            hooks=app.hooks.kinds(),
            pools=pools,
            resources=resources,
            declared=app.declared(),
            store=app.store_url,
            release=_release(target, before),
        )
    except PitbossError as error:
        return Description(error=str(error), code=error.code)
    except BaseException as error:  # the user's module may raise anything, SystemExit included
        return Description(error=f"{type(error).__name__}: {error}", traceback=_from_user_code(error))


def _release(target: str, before: Collection[str]) -> str:
    """A digest of the source files that came with the app: those of its own package, and others that are not
    installed. Its data and what it imports later do not count."""
    digest = blake2b(digest_size=6)
    for file in sorted(set(_own_files(target.partition(":")[0].partition(".")[0], before))):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _own_files(package: str, before: Collection[str]) -> Iterator[Path]:
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    for name in sys.modules.keys() - set(before):
        path = Path(getattr(sys.modules[name], "__file__", None) or "")
        own = name.partition(".")[0] == package or not any(path.is_relative_to(one) for one in installed)
        if path.suffix == ".py" and own and not name.startswith("pitboss.") and path.is_file():
            yield path


def _from_user_code(error: BaseException) -> str:
    """The traceback without the frames of this package, which mean nothing to the user."""
    lines = traceback.format_exception(error)
    first = next((index for index, line in enumerate(lines) if "importlib" in line), 0)
    kept = [line for line in lines[first:] if "importlib" not in line]
    return "".join(kept or lines)


if __name__ == "__main__":
    # What the user's module prints while it is imported must not mix with the description.
    out, sys.stdout = sys.stdout, sys.stderr
    out.write(msgspec.json.encode(described(sys.argv[1])).decode())
