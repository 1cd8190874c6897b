"""A short-lived child process that describes an app as data, so that the manager never imports the user's code."""

import sys
import traceback

import msgspec

from pitboss.model.declared import Declared
from pitboss.model.errors import PitbossError
from pitboss.model.pool_keys import DeclaredPool
from pitboss.model.queue import HandlerInfo
from pitboss.model.resource_keys import DeclaredResources
from pitboss.worker.app_loading import load_app


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager needs to know about an app, or the error that prevented it."""

    handlers: list[HandlerInfo] = []
    hooks: list[str] = []
    pools: list[DeclaredPool] = []
    resources: list[DeclaredResources] = []
    declared: Declared = Declared(app="app")
    store: str | None = None
    error: str | None = None
    traceback: str | None = None


def described(target: str) -> Description:
    """The app's description; an error while loading it becomes part of it."""
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
        )
    except PitbossError as error:
        return Description(error=str(error))
    except BaseException as error:  # the user's module may raise anything, SystemExit included
        return Description(error=f"{type(error).__name__}: {error}", traceback=_from_user_code(error))


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
