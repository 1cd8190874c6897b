"""The application: every route with its role, the OpenAPI document, and errors in their envelope."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal

import fastapi_offline
from fastapi import FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_swagger_ui_html
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles

from pitboss.http import bodies, patterns, shapes
from pitboss.http.answers import NO_STORE, Answer, ApiError, Reply, Stream, failure, of_faults, of_pitboss
from pitboss.http.api import alerts, claims, events, fleet, metrics, schedules, tasks, types, views, work, workers
from pitboss.http.context import Call, Server
from pitboss.http.gate import PREFIX_KEY, UI, Fast, Gate, GateRules, roles_of
from pitboss.http.routes import Endpoint, Routes, allowed_methods, for_framework, response
from pitboss.http.web.site import Site
from pitboss.model.batch import BatchStatus
from pitboss.model.errors import PitbossError
from pitboss.model.operation import OperationStatus
from pitboss.operate.export import LINES

# The routes that workers and producers use all the time: served by the gate itself.
FAST: dict[tuple[str, str], tuple[Any, type[BaseModel], type[BaseModel], tuple[int, ...]]] = {
    ("POST", "/tasks"): (tasks.create_task, bodies.CreateTask, shapes.Created, (201, 200)),
    ("POST", "/tasks/bulk"): (tasks.create_many, bodies.CreateTasks, shapes.listed("tasks", shapes.Created), (201,)),
    ("POST", "/tasks/claim"): (claims.claim_tasks, bodies.ClaimTasks, shapes.ClaimShape, (200,)),
    ("POST", "/tasks/complete"): (claims.complete_many, bodies.CompleteMany, shapes.Anything, (200,)),
    ("POST", "/tasks/{task_id}/progress"): (claims.progress, bodies.Progress, shapes.Sign, (200,)),
    ("POST", "/tasks/{task_id}/heartbeat"): (claims.heartbeat, bodies.Report, shapes.Sign, (200,)),
    ("POST", "/tasks/{task_id}/complete"): (claims.complete, bodies.Complete, shapes.EndedShape, (200,)),
    ("POST", "/tasks/{task_id}/fail"): (claims.fail, bodies.Fail, shapes.EndedShape, (200,)),
    ("POST", "/tasks/{task_id}/release"): (claims.release, bodies.Release, shapes.EndedShape, (200,)),
}


Page = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=10_000)]
Text = Annotated[str | None, Query(max_length=2000, pattern=patterns.PLAIN)]
Id = Annotated[str | None, Query(pattern=patterns.ID)]
Repeatable = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=300)]
Accepted = Annotated[str, Header(alias="Accept", max_length=2000, include_in_schema=False)]
TaskStatus = Literal["pending", "claimed", "completed", "failed", "held", "scheduled", "running", "cancelled"]


def make_app(server: Server, rules: GateRules) -> Gate:
    """The whole application around one server."""
    app = FastAPI(
        title="Pitboss",
        version=server.release or "0",
        description="Tasks, task types, remote workers, and everything that operators do.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    routes = _add_routes(app)
    _add_docs(app)
    _add_errors(app, server)
    fast = {place: Fast(endpoint, body, roles_of(*place)) for place, (endpoint, body, _shape, _codes) in FAST.items()}
    return Gate(server, rules, app, fast, Site(server, rules, app, routes))


def _add_routes(app: FastAPI) -> Sequence[BaseRoute]:
    """Every route of the API, under its prefix."""
    routes = Routes()
    for (method, path), (endpoint, body, shape, codes) in FAST.items():
        routes.add(method, path, for_framework(endpoint, body, path), shape, codes, endpoint.__doc__)
    _add_tasks(routes)
    _add_types_and_workers(routes)
    _add_fleet(routes)
    _add_queues(routes)
    _add_work(routes)
    _add_schedules(routes)
    _add_alerts(routes)
    _add_events(routes)
    routes.include_in(app)
    return routes.prefixed


def _add_tasks(routes: Routes) -> None:
    async def list_tasks(
        call: Call,
        status: TaskStatus | None = None,
        type: Text = None,  # noqa: A002 - the name of the parameter in the URL
        filter: Text = None,  # noqa: A002
        limit: Page = 50,
        offset: Offset = 0,
        cursor: Id = None,
    ) -> Answer:
        """Tasks, newest first."""
        return await tasks.list_tasks(
            call, status=status, kind=type, wanted=filter, limit=limit, offset=offset, cursor=cursor
        )

    async def export(call: Call, filter: Text = None) -> Stream:  # noqa: A002
        """The newest 100,000 tasks that match, as lines of JSON."""
        return await tasks.export(call, filter)

    def many(act: str) -> Endpoint:
        async def run(call: Call, body: bodies.Selected) -> Answer:
            return await tasks.act_on_many(call, act, body)

        run.__doc__ = f"{act.capitalize()} all tasks that a filter selects; many as an operation."
        return run

    async def retry_many(call: Call, body: bodies.RetryMany) -> Answer:
        """Retry all tasks that a filter selects; many, or at a rate, as an operation."""
        return await tasks.act_on_many(call, "retry", body)

    async def list_operations(call: Call, status: OperationStatus | None = None, limit: Page = 100) -> Answer:
        """Operations, newest first."""
        return await work.list_operations(call, status=status, limit=limit)

    async def remove_view(
        call: Call,
        name: Annotated[str, Query(min_length=1, max_length=60, pattern=patterns.PLAIN)],
        shared: bool = False,
    ) -> Answer:
        """Remove a shared view, or one of the caller."""
        return await views.remove(call, name=name, shared=shared)

    routes.add("GET", "/views", views.get_views)
    routes.add("POST", "/views", views.save, codes=(201,))
    routes.add("DELETE", "/views", remove_view)
    routes.add("GET", "/tasks", list_tasks, shapes.listed("tasks", shapes.TaskShape))
    routes.add_text("GET", "/tasks/export", export, (LINES,))
    routes.add("GET", "/tasks/{task_id}", tasks.get_task, shapes.TaskShape)
    routes.add("GET", "/tasks/{task_id}/why", tasks.why)
    routes.add("GET", "/tasks/{task_id}/stack", tasks.stack)
    routes.add("POST", "/tasks/{task_id}/cancel", tasks.cancel_one, shapes.EndedShape)
    routes.add("POST", "/tasks/{task_id}/retry", tasks.retry_one, shapes.EndedShape)
    routes.add("PATCH", "/tasks/{task_id}", tasks.change_one, shapes.TaskShape)
    routes.add("DELETE", "/tasks/{task_id}", tasks.delete_one)
    for act in ("cancel", "delete"):
        routes.add("POST", f"/tasks/{act}", many(act), codes=(200, 202))
    routes.add("POST", "/tasks/change", tasks.change_many)
    routes.add("POST", "/tasks/retry", retry_many, codes=(200, 202))
    routes.add("GET", "/operations", list_operations)
    routes.add("GET", "/operations/{operation_id}", work.get_operation)
    routes.add("POST", "/operations/{operation_id}/cancel", work.cancel_operation)
    routes.add("POST", "/operations/{operation_id}/rate", work.change_operation_rate)


def _add_types_and_workers(routes: Routes) -> None:
    async def list_types(call: Call, active_only: bool = False) -> Answer:
        """All task types."""
        return await types.list_types(call, active_only=active_only)

    async def scaling(
        call: Call,
        name: str,
        tasks_per_worker: Annotated[int, Query(ge=1, le=100_000)] = 1,
        min_workers: Annotated[int, Query(ge=0, le=10_000)] = 0,
        max_workers: Annotated[int, Query(ge=0, le=10_000)] = 100,
    ) -> Answer:
        """How many workers the tasks of this type want, for autoscalers."""
        return await types.scaling(
            call, name, tasks_per_worker=tasks_per_worker, min_workers=min_workers, max_workers=max_workers
        )

    routes.add("POST", "/task-types/register", types.register_type, shapes.TypeChange, (201, 200))
    routes.add("GET", "/task-types", list_types, shapes.listed("task_types", shapes.TaskTypeShape))
    routes.add("GET", "/task-types/{name}", types.get_type, shapes.TaskTypeShape)
    routes.add("DELETE", "/task-types/{name}", types.deactivate, shapes.TaskTypeShape)
    routes.add("GET", "/task-types/{name}/scaling", scaling, shapes.Scaling)
    routes.add("POST", "/workers/register", workers.register, codes=(201, 200))
    routes.add("POST", "/workers/{worker_id}/heartbeat", workers.heartbeat)
    routes.add("PUT", "/workers/{worker_id}/status", workers.set_status)
    routes.add("GET", "/workers", workers.list_workers, shapes.listed("workers", shapes.WorkerShape))
    routes.add("GET", "/workers/{worker_id}/stats", workers.get_stats, shapes.StatsShape)
    routes.add("GET", "/workers/{worker_id}", workers.get_worker, shapes.WorkerShape)


def _add_fleet(routes: Routes) -> None:
    def of_manager(act: str) -> Endpoint:
        async def run(call: Call, session: int) -> Answer:
            return await fleet.act_on_manager(call, session, act)

        run.__doc__ = f"Ask a manager: {act}."
        return run

    async def failures(call: Call, filter: Text = None) -> Answer:  # noqa: A002
        """Failed tasks, grouped by cause."""
        return await fleet.failures(call, filter)

    async def figures(
        call: Call, queue: Text = None, handler: Text = None, pool: Text = None, since: Text = None, step: Text = None
    ) -> Answer:
        """Figures over time: what happened to tasks, how long they took, and how pools were."""
        return await fleet.figures(call, since or "2h", step, queue=queue, handler=handler, pool=pool)

    async def overview(
        call: Call, since: Annotated[str, Query(max_length=20, pattern=patterns.PLAIN)] = "24h"
    ) -> Answer:
        """How workers and tasks did over a time, also before the last restart."""
        return await fleet.overview(call, since=since or "24h")

    async def audit(call: Call, limit: Page = 100, before: Id = None, act: Text = None, who: Text = None) -> Answer:
        """What operators and admins did, newest first."""
        return await fleet.audit(call, limit=limit, before=before, act=act, who=who)

    async def activity(
        call: Call, limit: Page = 100, before: Id = None, since: Text = None, kind: Text = None
    ) -> Answer:
        """What happened, newest first; for admins with the audit log."""
        return await fleet.activity(call, limit=limit, before=before, since=since, kind=kind)

    async def read_metrics(
        call: Call, accept: Annotated[str, Header(max_length=2000, include_in_schema=False)] = ""
    ) -> Reply:
        return await metrics.metrics(call, accept)

    read_metrics.__doc__ = metrics.metrics.__doc__
    routes.add_text("GET", "/metrics", read_metrics, ("text/plain", "application/openmetrics-text"))
    routes.add("GET", "/health", fleet.health, shapes.Health)
    routes.add("GET", "/readyz", fleet.health, shapes.Health)
    routes.add("GET", "/livez", fleet.alive, shapes.Health)
    routes.add("GET", "/status", fleet.status)
    routes.add("GET", "/overview", overview)
    routes.add("GET", "/figures", figures)
    routes.add("GET", "/managers", fleet.list_managers)
    for act in ("drain", "undrain", "stop"):
        routes.add("POST", f"/managers/{{session}}/{act}", of_manager(act))
    routes.add("GET", "/worker-pools", fleet.list_pools)
    routes.add("POST", "/worker-pools/{name}/scale", fleet.scale)
    routes.add("POST", "/worker-pools/{name}/restart", fleet.restart)
    routes.add("POST", "/worker-pools/{name}/pause", fleet.pause)
    routes.add("POST", "/worker-pools/{name}/resume", fleet.resume)
    routes.add("GET", "/failures", failures)
    routes.add("GET", "/keys", fleet.get_keys)
    routes.add("POST", "/keys", fleet.add_key, codes=(201,))
    routes.add("DELETE", "/keys/{name}", fleet.remove_key)
    routes.add("GET", "/audit", audit)
    routes.add("GET", "/activity", activity)
    routes.add("POST", "/activity/{entry_id}/undo", fleet.undo_act)


def _add_queues(routes: Routes) -> None:
    routes.add("GET", "/queues", fleet.list_queues)
    routes.add("GET", "/queues/{name}", fleet.get_queue)
    routes.add("PATCH", "/queues/{name}", fleet.change_queue)
    routes.add("POST", "/queues/{name}/pause", fleet.pause_queue)
    routes.add("POST", "/queues/{name}/resume", fleet.resume_queue)
    routes.add("GET", "/partitions/{name}", fleet.get_partitions)
    routes.add("POST", "/partitions/{name}/move", fleet.move_partition)
    routes.add("POST", "/partitions/{name}/pin", fleet.pin_partition)
    routes.add("POST", "/partitions/{name}/unpin", fleet.unpin_partition)


def _add_work(routes: Routes) -> None:
    async def get_batches(call: Call, status: BatchStatus | None = None, limit: Page = 100) -> Answer:
        """Batches: those that run first, then those in line, then the ended."""
        return await work.get_batches(call, status=status, limit=limit)

    async def delete_batch(call: Call, batch_id: str, force: bool = False) -> Answer:
        """Delete a batch with its items."""
        return await work.delete_batch(call, batch_id, force=force)

    def of_member(act: str) -> Endpoint:
        async def run(call: Call, name: str, member: str) -> Answer:
            return await work.change_member(call, name, member, act)

        run.__doc__ = f"{act.capitalize()} a member."
        return run

    def of_all_members(act: str) -> Endpoint:
        async def run(call: Call, name: str) -> Answer:
            return await work.change_all_members(call, name, act)

        run.__doc__ = f"{act.capitalize()} all members of a pool."
        return run

    for act in ("enable", "reset"):
        routes.add("POST", f"/resource-pools/{{name}}/{act}", of_all_members(act))
    member = "/resource-pools/{name}/members/{member}"
    routes.add("GET", "/batches", get_batches)
    routes.add("POST", "/batches", work.new_batch, codes=(201,))
    routes.add("GET", "/batches/{batch_id}", work.get_batch)
    routes.add("DELETE", "/batches/{batch_id}", delete_batch)
    routes.add("POST", "/batches/{batch_id}/{act}", work.act_on_batch)
    routes.add("GET", "/lanes", work.get_lanes)
    routes.add("PUT", "/lanes/{name}", work.change_lane)
    routes.add("GET", "/resource-pools", work.get_resource_pools)
    routes.add("GET", "/resource-pools/{name}", work.get_resource_pool)
    routes.add("PATCH", "/resource-pools/{name}", work.limit_pool)
    routes.add("POST", "/resource-pools/{name}/members", work.add_members, codes=(201,))
    routes.add("GET", member, work.get_member)
    routes.add("DELETE", member, of_member("remove"))
    for act in ("enable", "disable", "reset"):
        routes.add("POST", f"{member}/{act}", of_member(act))


def _add_schedules(routes: Routes) -> None:
    async def list_schedules(
        call: Call, limit: Page = 1000, after: Annotated[str | None, Query(pattern=patterns.NAME)] = None
    ) -> Answer:
        """Schedules, by name."""
        return await schedules.list_schedules(call, limit=limit, after=after)

    async def next_ticks(call: Call, name: str, count: Annotated[int, Query(ge=1, le=100)] = 10) -> Answer:
        """The next ticks of a schedule."""
        return await schedules.next_ticks(call, name, count=count)

    async def pause(call: Call, name: str, body: bodies.Pause = fleet.PAUSE) -> Answer:
        """Let a schedule put no tasks."""
        return await schedules.pause_schedule(call, name, paused=True, reason=body.reason)

    async def resume(call: Call, name: str) -> Answer:
        """Let a schedule go on with its next tick."""
        return await schedules.pause_schedule(call, name, paused=False)

    one = "/schedules/{name}"
    routes.add("GET", "/schedules", list_schedules, shapes.listed("schedules", shapes.ScheduleShape))
    routes.add("POST", "/schedules", schedules.add_schedule, shapes.ScheduleShape, (201, 200))
    routes.add("GET", one, schedules.get_schedule, shapes.ScheduleShape)
    routes.add("PATCH", one, schedules.change_schedule, shapes.ScheduleShape)
    routes.add("DELETE", one, schedules.remove_schedule)
    routes.add("GET", f"{one}/next", next_ticks, shapes.Ticks)
    routes.add("POST", f"{one}/run", schedules.run, shapes.RunShape, (201, 200))
    routes.add("POST", f"{one}/pause", pause, shapes.ScheduleShape)
    routes.add("POST", f"{one}/resume", resume, shapes.ScheduleShape)
    routes.add("POST", f"{one}/reset", schedules.reset_schedule, shapes.ScheduleShape)


def _add_alerts(routes: Routes) -> None:
    routes.add("GET", "/alerts", alerts.list_alerts, shapes.Alerts)
    routes.add("POST", "/alerts/silences", alerts.silence, shapes.SilenceShape, (201,))
    routes.add("DELETE", "/alerts/silences/{rule}", alerts.unsilence)
    routes.add("POST", "/alerts/channels/{name}/test", alerts.test_channel)


def _add_events(routes: Routes) -> None:
    async def list_events(
        call: Call,
        name: Annotated[str | None, Query(max_length=128, pattern=patterns.EVENT)] = None,
        limit: Page = 50,
        before: Id = None,
    ) -> Answer:
        """Events, newest first."""
        return await events.list_events(call, name=name, limit=limit, before=before)

    async def publish(call: Call, body: bodies.Publish, idempotency_key: Repeatable = None) -> Answer:
        # The gate has read the header; it is named here for the OpenAPI document.
        return await events.publish(call, body)

    publish.__doc__ = events.publish.__doc__
    routes.add("GET", "/events", list_events, shapes.listed("events", shapes.EventShape))
    routes.add("POST", "/events", publish, shapes.PublishedShape, (201, 200))
    routes.add("GET", "/events/{event_id}", events.get_event, shapes.EventShape)
    routes.add("POST", "/events/{event_id}/replay", events.replay)


def _add_docs(app: FastAPI) -> None:
    """A page to try the routes. All its files come from here: it makes no request to any other host."""
    folder = Path(fastapi_offline.__file__).parent / "static"
    app.mount("/docs/static", StaticFiles(directory=folder), name="docs-files")

    @app.get("/", include_in_schema=False)
    async def root(request: Request) -> RedirectResponse:
        moved = RedirectResponse(f"{_prefix(request)}{UI}")
        moved.raw_headers.append(NO_STORE)
        return moved

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        prefix = _prefix(request)
        page = get_swagger_ui_html(
            openapi_url=f"{prefix}/openapi.json",
            title="Pitboss API",
            swagger_js_url=f"{prefix}/docs/static/swagger-ui-bundle.js",
            swagger_css_url=f"{prefix}/docs/static/swagger-ui.css",
            swagger_favicon_url=f"{prefix}/docs/static/favicon.png",
        )
        page.raw_headers.append(NO_STORE)
        return page

    @app.get("/openapi.json", include_in_schema=False)
    async def document(request: Request) -> Response:
        prefix = _prefix(request)
        servers = {"servers": [{"url": prefix}]} if prefix else {}
        return response(Reply.of(200, {**app.openapi(), **servers}))

    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        document.setdefault("components", {})["securitySchemes"] = {
            "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            "Bearer": {"type": "http", "scheme": "bearer"},
        }
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _prefix(request: Request) -> str:
    """What stands before every path: the configured one, and where another application has mounted this one."""
    return str(request.scope.get(PREFIX_KEY, ""))


def _add_errors(app: FastAPI, server: Server) -> None:
    def replied(error: ApiError) -> Response:
        return response(failure(error, server.clock.wall()))

    @app.exception_handler(ApiError)
    async def api_error(_: Request, error: ApiError) -> Response:
        return replied(error)

    @app.exception_handler(PitbossError)
    async def pitboss_error(_: Request, error: PitbossError) -> Response:
        return replied(of_pitboss(error))

    @app.exception_handler(RequestValidationError)
    async def wrong_fields(_: Request, error: RequestValidationError) -> Response:
        return replied(of_faults(error.errors()))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        return _plain_error(request, error, replied)


def _plain_error(request: Request, error: HTTPException, replied: Callable[[ApiError], Response]) -> Response:
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = allowed_methods(request.url.path)
        told = ApiError(405, "Method not allowed", why=f"this path has {', '.join(allowed)}", fix="use one of them")
        refused = replied(told)
        refused.headers["allow"] = ", ".join(allowed)
        return refused
    if error.status_code == HTTPStatus.NOT_FOUND:
        return replied(
            ApiError(
                404,
                "Endpoint not found",
                why=f"there is no {request.url.path[:200]}",
                fix=f"see {_prefix(request)}/docs",
            )
        )
    return replied(ApiError(error.status_code, str(error.detail)))


def openapi_document(server: Server) -> Mapping[str, Any]:
    """The document of the API, without serving it."""
    app = FastAPI(title="Pitboss", version=server.release or "0", separate_input_output_schemas=False)
    _add_routes(app)
    _add_docs(app)
    return app.openapi()


__all__ = ["make_app", "openapi_document"]
