"""How messages reach the pipeline: over RabbitMQ (amqp.py), or without a broker."""

import json
from typing import Any, NamedTuple, Protocol
from urllib.request import Request, urlopen

from media_demo.processes import LIMIT, Manager


class DeadLetter(NamedTuple):
    """A message in a dead-letter queue of RabbitMQ."""

    queue: str
    headers: dict[str, Any]
    body: str


class Way(Protocol):
    """`options` and `settings` are for `pitboss up`; `retry` is for `pitboss dead retry`, after the link was mended."""

    options: tuple[str, ...]
    settings: dict[str, str]
    retry: tuple[str, ...]

    def send(self, manager: Manager, queue: str, message: dict[str, Any]) -> None: ...

    def send_text(self, queue: str, text: str) -> bool:
        """Send what is no proper message; whether that is possible at all."""

    def waiting(self) -> int:
        """How many messages the queues of work have."""

    def dead_letters(self) -> list[DeadLetter]: ...


class Direct:
    """Without a broker: Pitboss's HTTP API stores the task. It refuses what is no proper message."""

    options: tuple[str, ...] = ("--no-sources",)
    settings: dict[str, str]
    retry: tuple[str, ...] = ("queue:download_queue",)

    def __init__(self) -> None:
        self.settings = {}

    def send(self, manager: Manager, queue: str, message: dict[str, Any]) -> None:
        """Each handler has the name of its queue, without `_queue`."""
        body = json.dumps({"type": queue.removesuffix("_queue"), "params": {"message": message}}).encode()
        request = Request(f"{manager.url}/api/tasks", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=LIMIT) as answer:
            answer.read()

    def send_text(self, queue: str, text: str) -> bool:
        return False

    def waiting(self) -> int:
        return 0

    def dead_letters(self) -> list[DeadLetter]:
        return []
