"""Acts of code for the audit log: what a program does that an operator could do, too."""

import getpass
import os
import socket
from collections.abc import Mapping

from pitboss.client.context import current_context
from pitboss.model.access import AuditEntry
from pitboss.model.canonical import printable, to_json
from pitboss.model.ids import TaskId

_LONGEST = 500


def act_of_code(new_id: TaskId, act: str, target: str, details: Mapping[str, object]) -> AuditEntry:
    """The entry. The manager of a worker adds where that was."""
    given = {name: _plain(value) for name, value in details.items() if value not in (None, "", (), [], {}, False)}
    return AuditEntry(
        id=new_id,
        who=who_acts(),
        act=act,
        target=printable(target)[:_LONGEST],
        details=to_json(given, what="details"),
        source="code",
    )


def who_acts() -> str:
    """The task that runs here, or else the user of this process."""
    context = current_context.get(None)
    if context is not None:
        return f"task {context.id}"
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = f"uid {os.getuid()}"  # a container may have no name for it
    return f"{user}@{socket.gethostname()}"


def _plain(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    return printable(value if isinstance(value, str) else str(value))[:_LONGEST]
