"""The gates of a resource pool: a key for its secrets, and a member that fits the task and can be used now."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from pitboss.model.duration import Moment
from pitboss.model.gates import Gate, Scene, soon
from pitboss.model.leasing import avoided, condition, fits, in_service
from pitboss.model.picking import ReadyMembers
from pitboss.model.resource import Condition, PoolRules, Resource, Stage, Want
from pitboss.model.sealed import told
from pitboss.model.supply import ResourcePoolView
from pitboss.model.task import Task
from pitboss.model.text import counted

_READY = Condition.READY
# Conditions of members that are not ready, those that pass soonest first.
_AWAY = (Condition.BUSY, Condition.RESTING, Condition.COOLING, Condition.BLACKLISTED)


def of_resource(task: Task, scene: Scene) -> Gate | None:
    queue = scene.queues.get(task.queue)
    if queue is None or queue.resources is None:
        return None
    view = scene.pools.get(queue.resources) or ResourcePoolView(queue.resources, PoolRules())
    want = task.want or Want()
    if view.ready:
        return Gate(name="resource", what=_what(view, want), says="a member is ready", figure=f"{view.ready} usable")
    key = (view.name, want, task.tried)
    if key not in scene.known:
        scene.known[key] = _of_pool(view, want, task.tried, scene)
    found: Gate = scene.known[key]
    return found


def _of_pool(view: ResourcePoolView, want: Want, tried: Sequence[str], scene: Scene) -> Gate:
    fitting = [member for member in view.members if fits(member, want)]
    if not any(member.enabled for member in fitting):
        return _no_member(view, want, fitting)
    bound = _bound(view, want, scene)
    if bound is not None:
        return _of_bound(view, want, bound, scene.now)
    shunned = avoided(tried, sum(in_service(member, scene.now) for member in fitting))
    left = ResourcePoolView(view.name, view.rules, [member for member in fitting if member.name not in shunned])
    return _of_members(left, want, len(fitting), scene.now)


def of_keys(task: Task, scene: Scene) -> Gate | None:
    """Whether a manager that knows the handler can open the pool's secrets; only where one of them cannot."""
    queue, knowing = scene.queues.get(task.queue), scene.knowing(task.handler)
    pool = None if queue is None else queue.resources
    lacking = [
        own for one in knowing if (own := [key for key in one.snapshot.missing_keys if key.pool == pool]) and pool
    ]
    if not lacking:
        return None
    what, figure = f"Secrets of {pool}", f"{len(knowing) - len(lacking)} of {counted(len(knowing), 'manager')}"
    if len(lacking) < len(knowing):
        return Gate(name="keys", what=what, says="a manager has their key", figure=figure)
    keys = told(sorted({key for own in lacking for key in own}))
    return Gate(
        name="keys",
        what=what,
        passed=False,
        says=f"no manager has {keys}",
        figure=figure,
        cause="missing-key",
        sentence=f"no running manager has {keys}, which its secrets are sealed with",
        stuck=True,
        helps=(
            "put the key back: the key file, or PITBOSS_SECRET_KEYS",
            f"if it is lost: pitboss resources add {pool} NAME --secret … --new-key, for each member",
        ),
    )


def _no_member(view: ResourcePoolView, want: Want, fitting: Sequence[Resource]) -> Gate:
    """No member that could ever fit: a person must add, label or enable one."""
    pool, labels, figure = view.name, _labels(want), f"{len(fitting)} of {len(view.members)}{_labels(want)}"
    if not view.members:
        says, cause, helps = "has no members", "no-members", (f"pitboss resources add {pool} NAME …",)
        figure = "0 members"
    elif not fitting:
        says, cause = f"has no member{labels}", "labels"
        helps = (f"pitboss resources add {pool} NAME {' '.join(f'--label {one}' for one in want.labels)}",)
    else:
        says, cause, figure = f"has no enabled member{labels}", "disabled", f"0 of {len(fitting)} enabled"
        helps = (f"pitboss resources enable {pool} {fitting[0].name if len(fitting) == 1 else '--all'}",)
    return _shut(
        view,
        want,
        says=says,
        figure=figure,
        cause=cause,
        sentence=f'resource pool "{pool}" {says}',
        stuck=True,
        helps=helps,
    )


def _bound(view: ResourcePoolView, want: Want, scene: Scene) -> Resource | None:
    """The member that the task's key is bound to, if it waits for that one although all others were ready."""
    name = scene.bound.get((view.name, want.key)) if want.key is not None else None
    member = next((one for one in view.members if one.name == name), None)
    if member is None:
        return None
    others = ReadyMembers(replace(one, stage=Stage.READY) for one in view.members if one.name != name and one.enabled)
    return member if others.choose(want, (), member, view.rules) is None else None


def _of_bound(view: ResourcePoolView, want: Want, member: Resource, now: Moment) -> Gate:
    how, until = condition(member, view.rules, now)
    back = f"; back in {soon(until - now)}" if until is not None else ""
    if how is _READY:
        return Gate(name="resource", what=_what(view, want), says=f"{member.name}, which its key has, is ready")
    return _shut(
        view,
        want,
        says=f"its key is bound to {member.name}, which is {how}",
        figure=f"{how}{back.replace('; back', ', back')}",
        cause=f"key-{how}",
        sentence=f'its key "{want.key}" is bound to {view.name}/{member.name}, which is {how}{back}',
        until=until,
        stuck=how is Condition.DISABLED,
        helps=_resets(view.name, [member], how),
    )


def _of_members(view: ResourcePoolView, want: Want, fitting: int, now: Moment) -> Gate:
    found = [condition(member, view.rules, now) for member in view.members]
    ready = sum(how is _READY for how, _ in found)
    figure = f"{ready} of {fitting} usable"
    if ready:
        return Gate(name="resource", what=_what(view, want), says="a member is ready", figure=figure)
    back = [until for _, until in found if until is not None]
    how = next((one for one in _AWAY if one in dict(found)), _READY)
    shortage = view.shortage(now)
    return _shut(
        view,
        want,
        says=f"{shortage}",
        figure=figure,
        cause=how,
        sentence=f"it waits for a resource{_labels(want)}: {shortage}",
        until=min(back, default=None),
        helps=_resets(view.name, view.members, how),
    )


def _shut(view: ResourcePoolView, want: Want, **gate: Any) -> Gate:
    return Gate(name="resource", what=_what(view, want), passed=False, **gate)


def _resets(pool: str, members: Sequence[Resource], how: Condition) -> tuple[str, ...]:
    """Commands that may bring a member back sooner. One that is busy or rests keeps its limits: more members help."""
    if how in (Condition.COOLING, Condition.BLACKLISTED):
        which = members[0].name if len(members) == 1 else "--all"
        return (f"pitboss resources show {pool}", f"pitboss resources reset {pool} {which}")
    if how is Condition.DISABLED:
        return (f"pitboss resources enable {pool} {members[0].name}",)
    return (f"pitboss resources add {pool} NAME …",)


def _what(view: ResourcePoolView, want: Want) -> str:
    named = [f"label {one}" for one in want.labels] + ([f"key {want.key}"] if want.key is not None else [])
    return ", ".join([f"Resource {view.name}", *named])


def _labels(want: Want) -> str:
    if not want.labels:
        return ""
    return f" with {'label' if len(want.labels) == 1 else 'labels'} {', '.join(want.labels)}"
