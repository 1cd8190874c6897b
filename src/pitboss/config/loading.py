"""The layers put on top of each other, checked, with where each value came from."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pydantic import ValidationError

from pitboss.config.environment import environment_layer, notes_on_variables, working_folder
from pitboss.config.files import anchored_path, anchored_store, file_layer
from pitboss.config.layers import POOLS, Layer, flat, is_pool_key, nested
from pitboss.config.pools import pool_tables
from pitboss.config.settings import DEFAULT_LOGS, DEFAULT_STORE, Settings
from pitboss.model.errors import InvalidInput
from pitboss.model.pool_keys import KEYS
from pitboss.model.resource_keys import checked


class Loaded(NamedTuple):
    """Settings, where each value came from, what a person should be told, and the project's folder if a file says."""

    settings: Settings
    origins: dict[str, str]
    notes: tuple[str, ...]
    folder: Path | None


def load(*, store: str | None = None) -> Settings:
    """The settings of a process without a command line. `store` is what its code says."""
    return loaded(code_store=store).settings


def loaded(given: Mapping[str, Any] | None = None, *, code_store: str | None = None) -> Loaded:
    """All layers merged. `given` is the command line's; what is None there was not given."""
    here = working_folder()
    told = {key: value for key, value in (given or {}).items() if value is not None}
    file, notes = file_layer(here)
    folder, pools = (file.folder, file.pools) if file else (here, ())
    layers = [
        Layer("command line", told, {key: f"--{key.replace('_', '-')}" for key in told if key != "app"}),
        environment_layer(pools),
        *([file.layer] if file else []),
        Layer("code", {"store": code_store} if code_store else {}, {"": "App(…)"}),
        # Like a path in the file: a default that moved with the working folder would be another place there.
        Layer("default", {"store": anchored_store(DEFAULT_STORE, folder), "logs": anchored_path(DEFAULT_LOGS, folder)}),
    ]
    _anchor(layers, here)
    sources = {key: layer for layer in reversed(layers) for key in layer.values}
    settings = _checked({key: layer.values[key] for key, layer in sources.items()}, sources)
    origins = {key: sources[key].where(key) if key in sources else "default" for key in flat(settings.model_dump())}
    return Loaded(settings, origins, (*notes, *notes_on_variables(pools)), file.folder if file else None)


def _anchor(layers: list[Layer], here: Path) -> None:
    """What is relative still, was written by somebody who stands here."""
    for layer in layers:
        for key, anchored in (("store", anchored_store), ("logs", anchored_path), ("secrets_file", anchored_path)):
            if isinstance(layer.values.get(key), str):
                layer.values[key] = anchored(layer.values[key], here)


def _checked(values: dict[str, Any], sources: Mapping[str, Layer]) -> Settings:
    def refuse(key: str, value: Any, error: InvalidInput) -> NoReturn:
        raise _refused_pool(key, value, error, sources[key].where(key)) from error

    _check_resources(values, sources)
    tables = pool_tables({key: value for key, value in values.items() if is_pool_key(key)}, refuse)
    single = nested({key: value for key, value in values.items() if not is_pool_key(key)})
    try:
        return Settings.model_validate(single | ({POOLS: tables} if tables else {}))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in fault["loc"])
        # The fault may lie deeper than a value that somebody wrote, or in the table around it.
        near = next((one for one in values if f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.")), key)
        key = near if key.startswith(near) else key
        raise _refused(key, values.get(key), fault, sources.get(near)) from error


def _check_resources(values: Mapping[str, Any], sources: Mapping[str, Layer]) -> None:
    """Here and not only with the rest: the whole table would be blamed for one key."""
    for key, value in values.items():
        match key.split("."):
            case ["resources", _, name]:
                try:
                    checked(name, value)
                except InvalidInput as error:
                    raise _unusable(key, value, sources[key].where(key), error) from error


def _refused(key: str, value: Any, fault: Any, layer: Layer | None) -> InvalidInput:
    where = layer.where(key) if layer else "settings"
    if fault["type"] == "extra_forbidden":
        known = [*flat(Settings().model_dump()), POOLS]
        return _no_such_setting(key, where, known, f"the settings are {', '.join(known)}")
    cause = fault.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInput):
        return _unusable(key, value, where, cause)
    default = f"correct it there, or leave it out for the default of {key}"
    return _unusable(key, value, where, InvalidInput("", why=fault["msg"], fix=default))


def _refused_pool(key: str, value: Any, error: InvalidInput, where: str) -> InvalidInput:
    match key.split("."):
        case [_, pool, name] if name not in KEYS:
            known = [f"{POOLS}.{pool}.{one}" for one in KEYS]
            return _no_such_setting(key, where, known, f"the keys of a pool are {', '.join(KEYS)}")
        case [_, _, "env", *_]:
            # A value there may be a secret.
            return InvalidInput(f"{key} cannot be used; it comes from the {where}", why=error.why, fix=error.fix)
    return _unusable(key, value, where, error)


def _no_such_setting(key: str, where: str, known: list[str], why: str) -> InvalidInput:
    close = difflib.get_close_matches(key, known, n=1)
    return InvalidInput(
        f'there is no setting "{key}" ({where})', why=why, fix=f'write "{close[0]}"' if close else "remove it"
    )


def _unusable(key: str, value: Any, where: str, cause: InvalidInput) -> InvalidInput:
    what = f"{key} = {value!r:.60} cannot be used; it comes from the {where}"
    return InvalidInput(what, why=cause.why, fix=cause.fix)
