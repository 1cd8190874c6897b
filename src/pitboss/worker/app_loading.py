"""Loads the user's app from a target: `module:app`, or a path to a Python file."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from pitboss.model.errors import InvalidInput

_USUAL_NAMES = ("app", "pitboss", "application")


def load_app(target: str) -> Any:
    """The app object. Errors in the user's own code pass through unchanged."""
    place, _, name = target.partition(":")
    is_path = place.endswith(".py") or "/" in place
    return _app_in(_from_file(Path(place)) if is_path else _from_name(place), name, target)


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise InvalidInput(
            f"there is no file {path}",
            why="the target ends in .py or contains a slash, so it is read as a path",
            fix="check the path, or name a module as in package.module:app",
        )
    # Like `python file.py`: modules beside it can be imported, and it is imported under its own name.
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} cannot be imported", why="it is not a Python file", fix="name a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if the target itself is missing: an import that fails inside it is an error in the user's code.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise InvalidInput(
            f'there is no module "{name}"',
            why=f"it is neither in {here} nor on the Python path",
            fix="start in the folder of your code, or give the path of a file, such as app.py",
        ) from error


def _app_in(module: ModuleType, name: str, target: str) -> Any:
    if name:
        app = getattr(module, name, None)
        if not _is_app(app):
            raise InvalidInput(
                f'{module.__name__} has no app named "{name}"',
                why="the name after the colon must be an App" if app is not None else "it has no such name",
                fix=f"apps in {module.__name__}: {', '.join(_apps(module)) or 'none'}",
            )
        return app
    apps = _apps(module)
    for usual in _USUAL_NAMES:
        if usual in apps:
            return apps[usual]
    if len({id(app) for app in apps.values()}) != 1:
        raise InvalidInput(
            f'"{target}" does not say which app to run',
            why=f"apps in {module.__name__}: {', '.join(apps) or 'none'}",
            fix=f"make one with app = App(), or name it: {module.__name__}:app",
        )
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if _is_app(value)}


def _is_app(value: object) -> bool:
    # By the methods of its class: this package must not import App, and `hasattr` on a value may run user code.
    return all(hasattr(type(value), verb) for verb in ("describe", "send", "worker_state"))
