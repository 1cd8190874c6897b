"""Declares the app's queues, schedules and subscriptions for each session of the manager."""

import asyncio
import os

from pitboss.engines.capabilities import capabilities, check_needs, resources_of
from pitboss.engines.declared_protocol import Declarations, every_schedule
from pitboss.engines.protocol import Store
from pitboss.manager import host
from pitboss.manager.announcer import Announcer
from pitboss.manager.plan import Plan, declared
from pitboss.model.declared import Declared
from pitboss.model.errors import InvalidInput, StoreUnavailable
from pitboss.model.partition import Partitioning
from pitboss.model.queue import LIMITS, Queue, QueueSettings
from pitboss.model.session import Session
from pitboss.model.text import listed
from pitboss.operate.queues import limit_text, partitioning_text
from pitboss.worker.describe import Description

AGAIN_SECONDS = 10.0


async def register(engine: Store, plan: Plan, description: Description, announcer: Announcer) -> None:
    """Register what an app needs and has. Pools first: a task whose queue is bound to a pool must find its rules."""
    wanted = declared(plan, description)
    check_needs(engine, description.handlers, [name for name, _ in plan.resources], wanted)
    await refuse_namesake(engine, wanted, {one.name for one in description.handlers})
    for name, app in (await taken_schedules(engine, wanted)).items():
        announcer.warn(f"schedule {name} is taken over from the app {app}, which declares it too: rename one")
    if plan.resources:
        resources = resources_of(engine)
        for name, rules in plan.resources:
            before = await resources.declare_pool(name, rules, by=f"manager {host.name()}:{os.getpid()}")
            announcer.declared(name, rules, before)
        announcer.limited(await resources.resource_pools())
    await engine.register(description.handlers)


async def refuse_namesake(engine: Store, declared: Declared | None, handlers: set[str]) -> None:
    """Refuse an app that has nothing in common with a running one of the same name: it would withdraw its schedules
    and subscriptions, as a newer version of it does."""
    has = capabilities(engine)
    if declared is None or has.declarations is None or has.schedules is None:
        return
    present = next((one for one in await has.declarations.declarations() if one.app == declared.app), None)
    if present is None:
        return
    schedules = await every_schedule(has.schedules)
    theirs = {one.handler for one in present.subscriptions}
    theirs |= {one.declared.handler for one in schedules if one.app == declared.app}
    now = engine.clock.now()
    alive = [one for one in await engine.sessions() if one.alive(now) and not host.is_dead(one) and not _own(one)]
    running = theirs & {name for session in alive for name in session.info.handlers}
    if running and theirs.isdisjoint(handlers):
        raise InvalidInput(
            f'another app named "{declared.app}" runs on this store',
            why=f"it has {listed(sorted(running)[:3])}, which this one does not have; this one would replace its "
            "schedules and its subscriptions to events, as a newer version of it does",
            fix='give one of them a name: App(name="billing"); if this is the newer version, stop the old one first',
        )


async def taken_schedules(engine: Store, declared: Declared | None) -> dict[str, str]:
    """The schedules of other apps that this one declares under the same name, with their apps."""
    schedules = capabilities(engine).schedules
    if declared is None or schedules is None or not declared.schedules:
        return {}
    found = await schedules.schedules([one.name for one in declared.schedules])
    return {one.name: one.app for one in found if one.app is not None and one.app != declared.app}


def _own(session: Session) -> bool:
    """A manager that reloads its code may replace all of it."""
    return (session.info.host, session.info.pid) == (host.name(), os.getpid())


class Declarer:
    """Knows what the code declares, and whether that counts. While a newer version of the app runs, it does not."""

    def __init__(self, engine: Store, declared: Declared | None, *, announcer: Announcer) -> None:
        self._engine, self._announcer = engine, announcer
        self._store, self._declared = capabilities(engine).declarations, declared
        self._session: int | None = None
        self._outdated = False

    async def open(self, session: int) -> None:
        """Declare for a new session, before it claims: a queue's limits must be there first."""
        self._session = session
        await self._declare()

    async def change(self, declared: Declared | None) -> None:
        """Declare what the code says now."""
        self._declared, self._outdated = declared, False
        if self._session is not None:
            await self._declare()

    async def run(self) -> None:
        """Try again while a newer version of the app runs: it may be taken back."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            if self._outdated:
                try:
                    await self._declare()
                except StoreUnavailable:
                    continue

    async def _declare(self) -> None:
        if self._store is None or self._declared is None:
            return
        before = await self._queues_before(self._store, self._declared)
        counts = await self._store.declare(self._declared, session=self._session)
        if not counts and not self._outdated:
            self._announcer.say("a newer version of this app runs: its schedules and subscriptions count")
            await self._tell_ignored(self._store, self._declared)
        elif counts and self._outdated:
            self._announcer.say(
                "the newer version of this app has ended: the schedules and subscriptions of this one count"
            )
        self._outdated = not counts
        if before:
            await self._tell_changes(before)

    async def _queues_before(self, store: Declarations, declared: Declared) -> dict[str, Queue]:
        """The queues that some app declares, as they are, if these declarations may change some."""
        present = next((one for one in await store.declarations() if one.app == declared.app), None)
        if present is not None and present.queues == declared.queues:
            return {}
        return {queue.name: queue for queue in await self._engine.queues() if queue.declared is not None}

    async def _tell_changes(self, before: dict[str, Queue]) -> None:
        """Tell which limits and partitions the declaration has changed."""
        for queue in await self._engine.queues():
            found = _differences(before.get(queue.name, queue), queue)
            if found:
                changes = ", ".join(f"{key} {one} → {other}" for key, one, other in found)
                self._announcer.limits_changed(queue.name, changes)

    async def _tell_ignored(self, store: Declarations, declared: Declared) -> None:
        """Tell which settings of queues differ from those that count."""
        counting = {one.app: one.queues for one in await store.declarations()}.get(declared.app, {})
        for name, own in declared.queues.items():
            found = _differences(own, counting.get(name, QueueSettings()))
            if found:
                said = ", ".join(f"{key} {other}, not {one}" for key, one, other in found)
                self._announcer.warn(f"queue {name}: what the newer version declares counts: {said}")


def _differences(one: Queue | QueueSettings, other: Queue | QueueSettings) -> list[tuple[str, str, str]]:
    """The limits and partitions that differ, as texts."""
    texts = [(key, limit_text(one, key), limit_text(other, key)) for key in LIMITS]
    if one.partitions != other.partitions:
        before, after = (_partitions_text(whose.partitions) for whose in (one, other))
        texts.append(("partitions", before, after if after != before else "with another table"))
    return [each for each in texts if each[1] != each[2]]


def _partitions_text(spec: Partitioning | None) -> str:
    return "none" if spec is None else f"({partitioning_text(spec)})"
