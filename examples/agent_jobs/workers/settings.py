"""The document's settings, from the environment: where the queue is, how much runs at once, what is logged."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DEFAULT_STORES = {"sqlite": "agent.db", "postgres": "postgresql:///agent"}
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class WrongSetting(SystemExit):
    """A variable has a value that cannot be used. It ends the program, which prints what can be used."""

    def __init__(self, message: str) -> None:
        super().__init__(f"error: {message}")


class Settings(NamedTuple):
    """`store` is the URL of the queue. `concurrency` None: what `worker_config` in pitboss.yaml says."""

    store: str
    concurrency: int | None = None
    log_level: str = "INFO"

    @property
    def sqlite_file(self) -> Path | None:
        """The file of the queue, if it is one."""
        return Path(self.store.removeprefix("sqlite:///")) if self.store.startswith("sqlite:") else None

    @classmethod
    def load(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        return cls(_store(environment), _concurrency(environment), _level(environment))

    def variables(self) -> dict[str, str]:
        """The same for Pitboss."""
        own = {"PITBOSS_STORE": self.store, "PITBOSS_LOG_LEVEL": self.log_level.lower()}
        if self.concurrency is None:
            return own
        # One process that runs this many at once, as in the document.
        return own | {"PITBOSS_WORKERS": "1", "PITBOSS_CONCURRENCY": str(self.concurrency)}


def _store(environment: Mapping[str, str]) -> str:
    kind = environment.get("WORKER_QUEUE_TYPE") or "sqlite"
    if kind not in DEFAULT_STORES:
        raise WrongSetting(
            f"WORKER_QUEUE_TYPE={kind} is not supported: use {' or '.join(DEFAULT_STORES)}."
            " Both keep what they are given; neither needs a server besides the database."
        )
    place = environment.get("WORKER_QUEUE_URL") or DEFAULT_STORES[kind]
    if kind == "postgres":
        return place
    return f"sqlite:///{Path(place.removeprefix('sqlite:///')).resolve()}"


def _concurrency(environment: Mapping[str, str]) -> int | None:
    text = environment.get("WORKER_CONCURRENCY")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise WrongSetting(f"WORKER_CONCURRENCY={text} is not a number of tasks: use 1 or more.")
    return int(text)


def _level(environment: Mapping[str, str]) -> str:
    level = (environment.get("WORKER_LOG_LEVEL") or "INFO").upper()
    if level not in LEVELS:
        raise WrongSetting(f"WORKER_LOG_LEVEL={level} is not a level: use {', '.join(LEVELS)}.")
    return level
