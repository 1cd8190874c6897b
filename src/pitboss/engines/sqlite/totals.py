"""The totals of flows: rows of a bucket that never ends, written with those of the present bucket."""

from collections.abc import Mapping

from pitboss.engines.sqlite.act import Act, Flows
from pitboss.model.figures import KINDS, RAW, bucket
from pitboss.model.totals import EVER, EVER_BEGAN, Places

_ADD = {kind: f"flow_add_{kind}" for kind in KINDS}


class FlowWriter:
    """Writes what happened in a transaction. It keeps in mind which handlers have totals of their own: no row of them
    is ever removed. After a transaction that was rolled back a new one is needed."""

    def __init__(self) -> None:
        self._places = Places()

    def write(self, act: Act, flows: Flows) -> None:
        """Add it to the bucket of this moment, and to the totals. Usually that is one row of each."""
        at, places = bucket(act.now, RAW), self._known(act, flows)
        for (kind, queue, handler), n in flows.items():
            act.run(_ADD[kind], RAW, at, queue, handler, n)
        for (kind, queue, handler), n in _totals(flows, places).items():
            act.run(_ADD[kind], EVER, EVER_BEGAN, queue, handler, n)

    def _known(self, act: Act, flows: Flows) -> Places:
        """With those that come now. Other processes may have added some."""
        pairs = {(queue, handler) for _, queue, handler in flows}
        if not self._places.full and not all(self._places.has(*pair) for pair in pairs):
            self._places = Places((queue, handler) for queue, handler in act.rows("total_places"))
            self._places.add(pairs)
        return self._places


def _totals(flows: Mapping[tuple[str, str, str], int], places: Places) -> Flows:
    found: Flows = {}
    for (kind, queue, handler), n in flows.items():
        key = (kind, *places.counted(queue, handler))
        found[key] = found.get(key, 0) + n
    return found
