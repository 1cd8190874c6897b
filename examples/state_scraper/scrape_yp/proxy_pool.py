"""The proxies of PROXY_FILE as a resource pool of Pitboss, and each worker's view on it."""

import logging
from pathlib import Path
from typing import Any

from pitboss import Lease, Resources
from pitboss.model.resource import Resource
from pitboss.model.resource_files import read_rows
from scrape_yp.settings import Settings
from scrape_yp.state_assignments import STATE_ASSIGNMENTS, get_proxy_assignments, get_states_for_worker

# One line for each target and proxy, from all workers.
LOG = Path("logs/proxy_pool.log")
log = logging.getLogger(__name__)


def open_log() -> None:
    """Write what this process logs about proxies to `LOG` too. Each line is one write: those of workers do not mix."""
    LOG.parent.mkdir(exist_ok=True)
    if not log.handlers:
        handler = logging.FileHandler(LOG, delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)


class WorkerProxyPool:
    """The proxies of one worker: a view on the pool, not a pool of its own. Limits, failures and the blacklist are the
    store's, so that all workers on all hosts share them."""

    def __init__(self, pool: Resources, worker_id: int, proxies_per_worker: int = 5) -> None:
        get_states_for_worker(worker_id)  # refuses a worker that does not exist
        self._pool, self.worker_id = pool, worker_id
        self.proxy_indices = get_proxy_assignments(worker_id, proxies_per_worker)

    def get_proxy(self, wait: float | None = None) -> Lease:
        """The worker's next free proxy, for one request: `with pool.get_proxy() as proxy: …`. Each call rotates."""
        return self._pool.lease(labels=(_label(self.worker_id),), wait=wait)

    def proxies(self) -> list[Resource]:
        """Its proxies as the store knows them."""
        return [one for one in self._pool.members() if _label(self.worker_id) in one.labels]


def read_proxies(settings: Settings) -> list[dict[str, Any]]:
    """The lines of PROXY_FILE (host:port:user:password) as members of a pool, labelled with the worker and the states
    that they are assigned to."""
    rows = read_rows(settings.proxy_file.read_text(), str(settings.proxy_file))
    return [
        {"name": row.name, "fields": row.fields, "secrets": row.secrets, "labels": _labels(place, settings)}
        for place, row in enumerate(rows)
    ]


def _labels(place: int, settings: Settings) -> list[str]:
    worker = place // settings.proxies_per_worker
    return [_label(worker), *get_states_for_worker(worker)] if worker in STATE_ASSIGNMENTS else []


def _label(worker: int) -> str:
    return f"worker-{worker}"
