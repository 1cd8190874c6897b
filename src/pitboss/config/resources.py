"""Resource pools as file and environment change them, and where the keys of their secrets are."""

from pathlib import Path

from pitboss.config.environment import working_folder
from pitboss.config.loading import Loaded
from pitboss.config.settings import Settings
from pitboss.model.pool_keys import same_pool
from pitboss.model.resource import PoolRules
from pitboss.model.resource_keys import DeclaredResources, rules_of

_SQLITE = "sqlite:///"
_KEYS = "keys"


def resource_rules(settings: Settings, declared: DeclaredResources) -> PoolRules:
    """What code says of a pool, with the settings on top key by key."""
    said = dict(declared.said)
    for name, keys in settings.resources.items():
        if same_pool(name) == same_pool(declared.name):
            said |= keys
    return rules_of(said)


def key_file(found: Loaded) -> Path:
    """Where the keys of secrets are kept: as set, else beside the SQLite file, else in the project."""
    settings = found.settings
    if settings.secrets_file is not None:
        return Path(settings.secrets_file)
    path = settings.store.removeprefix(_SQLITE).partition("?")[0]
    if settings.store.startswith(_SQLITE) and path:
        return Path(f"{path}-pitboss") / _KEYS
    return (found.folder or working_folder()) / ".pitboss" / _KEYS
