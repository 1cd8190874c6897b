"""Order keys: which task of a key is first in line, and which one follows it."""

from collections.abc import Iterable

import msgspec

from pitboss.engines.sqlite.act import Act, Row, json_list
from pitboss.model.batching import waits
from pitboss.model.duration import Moment
from pitboss.model.ids import TaskId
from pitboss.model.states import State


class _Following(msgspec.Struct, array_like=True):
    """A key whose first task has ended, and the next one in its line, in the order of the columns."""

    key: str
    row: int | None
    id: str | None
    queue: str | None
    run_at: Moment | None
    known: bool


# Not strict, because SQLite has no booleans.
_following = msgspec.json.Decoder(list[_Following], strict=False)
_keys = msgspec.json.Decoder(set[str])


class Line:
    """The order keys of tasks that come into line in one act."""

    def __init__(self, act: Act, keys: set[str]) -> None:
        self._act = act
        self._taken = act.decoded("order_taken", _keys, json_list(keys))
        self._heads: dict[str, TaskId] = {}

    def is_behind(self, key: str | None, task: TaskId) -> bool:
        """Whether the task stands behind another one; if not, it is the first in line from now on."""
        return key is not None and (key in self._taken or self._heads.setdefault(key, task) != task)

    def forget(self) -> None:
        """The tasks were not stored."""
        self._heads.clear()

    def write(self) -> None:
        self._act.bulk("order_lead", list(self._heads.items()))
        self._taken |= self._heads.keys()
        self._heads.clear()


def line_of(act: Act, keys: Iterable[str | None]) -> Line | None:
    """None, without a look at the store, if there are no keys."""
    wanted = {key for key in keys if key is not None}
    return Line(act, wanted) if wanted else None


def release_next(act: Act, ended: Iterable[TaskId]) -> bool:
    """These tasks have ended: let those wait that follow the first ones in line. False if none of them was first."""
    lines = act.decoded("order_following", _following, json_list(ended))
    empty = [one.key for one in lines if one.id is None]
    if empty:
        act.run("order_end", json_list(empty))
    released: list[Row] = []
    heads: list[Row] = []
    for one in lines:
        if one.id is None or one.queue is None:
            continue
        place = waits(None, known=one.known, run_at=one.run_at, now=act.now)
        heads.append((one.key, one.id))
        released.append((one.row, place.state.value, place.reason))
        act.moved(one.queue, State.HELD.value, place.state.value)
        act.rings.add(one.queue)
    if released:
        act.bulk("order_lead", heads)
        act.bulk("order_release", released)
    return bool(lines)
