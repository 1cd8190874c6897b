"""The gate of tasks that remote workers run: the HTTP API runs, and a worker asks it for tasks of this type."""

from typing import TypeVar

import msgspec

from pitboss.model.alert_message import is_alert_handler
from pitboss.model.duration import SECOND, Moment, Span, spoken
from pitboss.model.fleet import ManagerView
from pitboss.model.gates import Gate, Scene
from pitboss.model.session import Session
from pitboss.model.source import SourceFigures, SourceState, is_outbox, is_sent, source_of
from pitboss.model.source_findings import KIND, live_sources
from pitboss.model.task import Task
from pitboss.model.text import counted, listed

T = TypeVar("T")
SERVER, WORKER = "http", "remote"
# A worker that has not asked for this long is not expected back.
LATELY: Span = 120 * SECOND
_CLAIM = "it waits for a remote worker to claim it over HTTP"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of a server's session: the task types that workers asked it for, and when last. None: not told."""

    asked: dict[str, Moment] | None = None


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a remote worker's snapshot that counts here; no types means all of them."""

    types: tuple[str, ...] = ()
    status: str = "active"


def of_remote(task: Task, scene: Scene) -> Gate:
    if is_outbox(task.handler):
        return _of_outbox(task, scene)
    if is_alert_handler(task.handler):
        return _of_channel(task, scene)
    servers = [one for one in scene.others if one.info.kind == SERVER]
    if not servers and not any(_serves(one) for one in scene.managers):
        return _shut(
            "no HTTP API runs on this store",
            cause="no-api",
            sentence=f"{_CLAIM}, and no HTTP API runs on this store",
            stuck=True,
            helps=("pitboss serve",),
        )
    looked_at = scene.remote.get(task.handler, ())
    if looked_at and task.queue not in looked_at:
        said = f"none looks in queue {task.queue} for {task.handler}, but in {listed(looked_at)}"
        helps = (f"pitboss tasks cancel {task.id}", f"send it again to queue {looked_at[0]}")
        return _shut(said, cause="remote-queue", sentence=f"{_CLAIM}, and {said}", stuck=True, helps=helps)
    workers = sum(_takes(one, task.handler) for one in scene.others)
    if workers:
        figure = counted(workers, "remote worker")
        return Gate(name="remote", what="Remote workers", says="they claim it over HTTP", figure=figure)
    told = [_asked(one) for one in servers]
    last = max((one.get(task.handler, 0) for one in told if one is not None), default=0)
    if last + LATELY > scene.now or None in told:
        return Gate(name="remote", what="Remote workers", says="they claim it over HTTP")
    since = f" for {spoken(scene.now - last)}" if last else ""
    said = f"none has asked for {task.handler}{since}"
    start = "python -m pitboss.remote worker.py:CLASS"
    return _shut(said, cause="no-remote-worker", sentence=f"{_CLAIM}, and {said}", stuck=True, helps=(start,))


def _of_outbox(task: Task, scene: Scene) -> Gate:
    """A message to a broker, which the delivery process of a manager publishes."""
    name = source_of(task.handler)
    living = [one for _, found in live_sources(scene.others, scene.now) for one in found if one.name == name]
    well = [one for one in living if one.out_state in (SourceState.STARTING, SourceState.RUNNING) or _tries(one, task)]
    if well:
        return Gate(name="source", what="Source", says="its process publishes it", figure=name)
    starts = [one.host for one in scene.managers if _keeps(one, name)]
    cause, stuck, helps = "source", False, tuple[str, ...]()
    if living:
        # Others may have another trouble than this message.
        said = task.error.message if task.error is not None and living[0].out_some else living[0].out_why
    elif starts:
        said = f"the delivery process on {listed(starts)} starts, or does not answer"
    else:
        said, cause, stuck, helps = f"no manager runs the source {name}", "no-source", True, ("pitboss up",)
    return Gate(
        name="source",
        what="Source",
        passed=False,
        says=said,
        figure=name,
        cause=cause,
        sentence=f"it is a message that waits to be published: {said}",
        stuck=stuck,
        helps=helps,
    )


def _of_channel(task: Task, scene: Scene) -> Gate:
    """A message of alerts, which a delivery process with its channel sends."""
    if any(task.handler in one.info.handlers for one in scene.others if one.info.kind == KIND):
        return Gate(name="source", what="Channel", says="a delivery process sends it", figure=task.handler)
    said = "no manager has this channel of alerts in its settings"
    return Gate(
        name="source",
        what="Channel",
        passed=False,
        says=said,
        figure=task.handler,
        cause="no-channel",
        sentence=f"it is a message of alerts that waits to be sent: {said}",
        stuck=True,
        helps=("pitboss up",),
    )


def _tries(source: SourceFigures, task: Task) -> bool:
    """Whether it publishes messages, of which this one has met no trouble."""
    return source.out_some and task.error is None


def _keeps(manager: ManagerView, source: str) -> bool:
    """Whether it keeps a process of this source running. One that stays down is a finding of its own."""
    side = manager.snapshot.delivery
    return side is not None and not side.why and source in side.names


def remote_ready(task: Task, ahead: str) -> str:
    """The sentence of a task that passes every gate."""
    if is_sent(task.handler):
        return f"it is a message that is published next{f'; {ahead}' if ahead else ''}"
    return f"{_CLAIM}{f'; {ahead}' if ahead else ''}"


def _shut(says: str, *, cause: str, sentence: str, stuck: bool = False, helps: tuple[str, ...] = ()) -> Gate:
    return Gate(
        name="remote",
        what="Remote workers",
        passed=False,
        says=says,
        figure="0 remote workers",
        cause=cause,
        sentence=sentence,
        stuck=stuck,
        helps=helps,
    )


def _serves(manager: ManagerView) -> bool:
    return manager.snapshot.http is not None and manager.snapshot.http.state == "running"


def _takes(session: Session, handler: str) -> bool:
    if session.info.kind != WORKER:
        return False
    card = _read(session, Registered) or Registered()
    return card.status != "offline" and (not card.types or handler in card.types)


def _asked(session: Session) -> dict[str, Moment] | None:
    found = _read(session, Asked)
    return None if found is None else found.asked


def _read(session: Session, form: type[T]) -> T | None:
    """A snapshot in a form that we can read."""
    try:
        return msgspec.json.decode(session.snapshot or "{}", type=form)
    except msgspec.MsgspecError:
        return None
