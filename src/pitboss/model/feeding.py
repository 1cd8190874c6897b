"""How much work a resource pool can feed: how many tasks at a time, and how many per second in the long run."""

from pitboss.model.duration import SECOND
from pitboss.model.resource import ResourcePool, Stage


def feed(pool: ResourcePool) -> int | None:
    """How many tasks can hold a member at a time; None is without limit."""
    most = pool.rules.limits.concurrency
    return None if most is None else _usable(pool) * most


def flow(pool: ResourcePool) -> float | None:
    """How many uses per second the limits of its members allow; None is without limit."""
    limits = pool.rules.limits
    rates = [window.count / (window.per + limits.guard) for window in limits.windows]
    gap = limits.min_delay + limits.jitter / 2
    if gap and limits.delay_from == "start":
        rates.append(1 / (gap + limits.guard))
    return min(rates) * SECOND * _usable(pool) if rates else None


def _usable(pool: ResourcePool) -> int:
    """Members that somebody will get again; whether one that is away comes back soon, nobody knows here."""
    return pool.members - pool.stages.get(Stage.OUT, 0)
