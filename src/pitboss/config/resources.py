"""Resource pools as file and environment change them, and where the keys of their secrets are."""

from collections.abc import Sequence
from pathlib import Path

from pitboss.config.environment import working_folder
from pitboss.config.loading import Loaded
from pitboss.config.settings import Settings
from pitboss.model.errors import InvalidInput
from pitboss.model.pool_keys import same_pool
from pitboss.model.resource import PoolRules
from pitboss.model.resource_keys import DeclaredResources, rules_of

_SQLITE = "sqlite:///"
_KEYS = "keys"


def resource_rules(settings: Settings, declared: DeclaredResources) -> PoolRules:
    """What code says of a pool, with the settings on top key by key."""
    said = dict(declared.values)
    for name, keys in settings.resources.items():
        if same_pool(name) == same_pool(declared.name):
            said |= keys
    return rules_of(said)


def all_resource_rules(settings: Settings, declared: Sequence[DeclaredResources]) -> tuple[tuple[str, PoolRules], ...]:
    """Every pool that the code declares. Settings of a pool that it does not have are a mistake."""
    known = {same_pool(pool.name) for pool in declared}
    strange = [name for name in settings.resources if same_pool(name) not in known]
    if strange:
        raise InvalidInput(
            f"the settings speak of {', '.join(f'resources.{name}' for name in strange)}, which the app does not have",
            why=f"its resource pools are {', '.join(pool.name for pool in declared) or 'none'}",
            fix="correct the name, or declare the pool with app.resources(…)",
        )
    return tuple((pool.name, resource_rules(settings, pool)) for pool in declared)


def key_file(found: Loaded) -> Path:
    """Where the keys of secrets are kept: as set, else beside the SQLite file, else in the project."""
    settings = found.settings
    if settings.secrets_file is not None:
        return Path(settings.secrets_file)
    path = settings.store.removeprefix(_SQLITE).partition("?")[0]
    if settings.store.startswith(_SQLITE) and path:
        return Path(f"{path}-pitboss") / _KEYS
    return (found.folder or working_folder()) / ".pitboss" / _KEYS
