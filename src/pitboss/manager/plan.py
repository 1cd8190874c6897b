"""How a manager runs its app, and what follows from that."""

from pathlib import Path

import msgspec

from pitboss.config import ServerSpec, secret_keys
from pitboss.model.alert_rules import AlertsSpec
from pitboss.model.declared import Declared
from pitboss.model.duration import Span
from pitboss.model.log_settings import LogSettings, log_file_name
from pitboss.model.policy import Policy
from pitboss.model.pool import PoolSpec
from pitboss.model.resource import PoolRules
from pitboss.model.retention import Retention
from pitboss.model.session import DEFAULT_TTL
from pitboss.model.source import DeliverySpec
from pitboss.secrets import KeyRing
from pitboss.worker.describe import Description


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a manager runs one app, and serves the HTTP API (`http`). Without a target and pools it runs no tasks: it
    serves the API, and looks after the store. `node` is its name in the slots of its workers; empty: that of the
    host."""

    target: str = ""
    node: str = ""
    pools: tuple[PoolSpec, ...] = (PoolSpec(),)
    drain_seconds: float = 30.0
    ttl: Span = DEFAULT_TTL
    retention: Retention = Retention()
    max_store_size: int | None = None
    min_free_disk: int | None = None
    host_memory: int | None = None
    logs: LogSettings | None = None
    resources: tuple[tuple[str, PoolRules], ...] = ()
    declared: Declared | None = None
    secrets_file: str | None = None
    http: ServerSpec | None = None
    delivery: DeliverySpec | None = None
    alerts: AlertsSpec | None = None


def declared(plan: Plan, description: Description) -> Declared | None:
    """What the app declares: as the plan says, which knows the settings too, or else as the code says. None: it has no
    app."""
    return (plan.declared or description.declared) if plan.target else None


def key_ring(plan: Plan) -> KeyRing | None:
    """The keys that its workers will have."""
    return None if plan.secrets_file is None else KeyRing(secret_keys(), Path(plan.secrets_file))


def policies(description: Description) -> dict[str, Policy]:
    """Of each handler, by its name."""
    return {handler.name: msgspec.json.decode(handler.policy, type=Policy) for handler in description.handlers}


def pool_logs(logs: LogSettings | None, worker: str, pool: PoolSpec) -> LogSettings | None:
    """The log settings of a worker: its pool may name the file."""
    if logs is None or pool.log_file is None:
        return logs
    # The name of a worker is the name of its pool and a number.
    place = int(worker.rpartition("-")[2]) - 1
    return msgspec.structs.replace(logs, file=log_file_name(pool.log_file, pool.name, place))
