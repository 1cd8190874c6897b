"""What alerts do: pause a queue, or give a worker pool more workers while they fire.

What is wanted is in the notes before it is done, and is absolute: a leader that dies in between is followed by one that
does it again, with the same result.
"""

import msgspec

from pitboss.engines.access_protocol import Access
from pitboss.engines.protocol import Clock, Store
from pitboss.model.access import AuditEntry
from pitboss.model.alert import AlertRule, Phase
from pitboss.model.alert_look import AlertNotes, Look
from pitboss.model.alert_rules import Pause, Scale, action_of
from pitboss.model.canonical import to_json
from pitboss.model.desired_state import pool_key
from pitboss.model.duration import Moment
from pitboss.model.fleet import live_managers, worker_pools
from pitboss.model.ids import derived_id
from pitboss.model.queue import QueueChange


class AlertActions:
    """Does what the notes want, once for each time that an alert fires."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        # By rule: the moment of the phase for which this process did all last. Another leader may have done later ones.
        self._done: dict[str, Moment] = {}

    async def decided(self, before: AlertNotes, look: Look) -> AlertNotes:
        """The notes, with what was done before, and the size that each worker pool is to have."""
        alerts = {
            name: msgspec.structs.replace(state, acted=max(state.acted or 0, self._done.get(name, 0)) or None)
            for name, state in look.notes.alerts.items()
        }
        for rule in look.began:
            action = action_of(rule.action)
            if isinstance(action, Scale):
                size = await self._size(action)
                alerts[rule.name] = msgspec.structs.replace(alerts[rule.name], size=size)
        return msgspec.structs.replace(look.notes, alerts=alerts)

    async def follow(self, notes: AlertNotes, now: Moment) -> None:
        """Do what is not done yet."""
        for rule in notes.rules:
            state = notes.alert(rule.name)
            action = action_of(rule.action)
            if action is None or state.fired == 0 or state.since in (state.acted, self._done.get(rule.name)):
                continue
            firing = state.phase is Phase.FIRING
            if isinstance(action, Pause) and firing:
                await self._audited(rule, action.queue, state.since).change_queue(
                    action.queue, QueueChange(paused=True, by=_by(rule))
                )
            elif isinstance(action, Scale) and state.size is not None:
                await self._scale(rule, action, state.size, state.since, firing=firing)
            self._done[rule.name] = state.since

    async def _size(self, action: Scale) -> int:
        sessions = await self._store.sessions()
        managers = live_managers(sessions, self._store.clock.now())
        return max((view.pool.wanted for view in worker_pools(managers, action.pool)), default=0) + action.more

    async def _scale(self, rule: AlertRule, action: Scale, size: int, since: Moment, *, firing: bool) -> None:
        """What an operator has wished since is left alone when the alert is over."""
        key = pool_key(action.pool)
        wishes = {one.key: one for one in await self._store.wishes()}
        known = wishes[key].value if key in wishes else None
        value = msgspec.json.decode(known) if known else {}
        if not firing and (value.get("size") != size or wishes[key].by != _by(rule)):
            return
        value.pop("size", None)
        if firing:
            value["size"] = size
        text = msgspec.json.encode(value).decode() if value else None
        await self._audited(rule, action.pool, since).wish(key, text, by=_by(rule))

    def _audited(self, rule: AlertRule, target: str, since: Moment) -> Store:
        store = self._store
        if not isinstance(store, Access):
            return store
        entry = AuditEntry(
            id=derived_id(since, "alert action", rule.name),
            who="pitboss",
            act=f"alert {rule.name}",
            target=target,
            details=to_json({"action": rule.action}),
            source="alerts",
        )
        return store.audited(entry)


def _by(rule: AlertRule) -> str:
    return f"alert {rule.name}"
