"""How a route is served: its roles first, then its body, then the endpoint, and the answer in the envelope."""

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from difflib import get_close_matches
from functools import cache
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any, get_type_hints

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from pitboss.http import bodies, patterns, shapes
from pitboss.http.access import CONTRACT, ROLES
from pitboss.http.answers import Answer, ApiError, Reply, Stream, of_fault, success
from pitboss.http.context import Call
from pitboss.http.gate import PREFIX, check_role, roles_of
from pitboss.model.access import Role
from pitboss.model.errors import PitbossError


def call_of(request: Request) -> Call:
    """The call that the gate has let in."""
    call: Call = request.scope["call"]
    return call


CallDep = Annotated[Call, Depends(call_of)]
Endpoint = Callable[..., Awaitable[Answer]]
TextEndpoint = Callable[..., Awaitable[Reply | Stream]]
# The texts that may stand in a path, by the names of their places.
_PLACES: dict[str, Any] = {
    "name": Annotated[str, Path(pattern=patterns.NAME)],
    "member": Annotated[str, Path(pattern=patterns.NAME)],
    "worker_id": Annotated[str, Path(min_length=1, max_length=200, pattern=patterns.WORKER)],
    "task_id": Annotated[str, Path(min_length=1, max_length=100, pattern=patterns.PLAIN)],
    "batch_id": Annotated[str, Path(pattern=r"^[0-9A-Fa-f][0-9A-Fa-f\-]{5,35}$", description="Or a piece of it.")],
    "operation_id": Annotated[str, Path(pattern=r"^[0-9A-Fa-f][0-9A-Fa-f\-]{5,35}$", description="Or a piece of it.")],
    "entry_id": Annotated[str, Path(pattern=patterns.ID)],
    "event_id": Annotated[str, Path(pattern=patterns.ID)],
    "session": Annotated[int, Path(ge=1, le=2**53)],
}
# The id of a worker may have slashes.
_WORKER, _ANY_WORKER = "{worker_id}", "{worker_id:path}"
_log = logging.getLogger("pitboss.http")


class Routes:
    """Adds routes to both routers: under the prefix, and those of the original API without it."""

    def __init__(self) -> None:
        self._prefixed = APIRouter(prefix=PREFIX, route_class=_Route)
        self._plain = APIRouter(route_class=_Route)
        self._added: set[tuple[str, str]] = set()

    def add(
        self,
        method: str,
        path: str,
        endpoint: Endpoint,
        shape: type[BaseModel] = shapes.Anything,
        codes: tuple[int, ...] = (200,),
        summary: str | None = None,
    ) -> None:
        wrapped: Any = {"model": shapes.Envelope[shape]}  # type: ignore[valid-type]
        options = _options(method, path, summary or endpoint.__doc__)
        options |= {"responses": {**shapes.ERRORS, **dict.fromkeys(codes, wrapped)}, "status_code": codes[0]}
        self._add(method, path, _answered(endpoint), options)

    def add_text(self, method: str, path: str, endpoint: TextEndpoint, kinds: tuple[str, ...]) -> None:
        """A route that answers with a text of one of these kinds. Its errors are as all others."""
        content = {kind: {"schema": {"type": "string"}} for kind in kinds}
        options = _options(method, path, endpoint.__doc__)
        options["responses"] = {**shapes.ERRORS, 200: {"description": "The text.", "content": content}}
        # A class without a kind: FastAPI would say that errors are texts too.
        self._add(method, path, _answered(endpoint), options | {"response_class": Response})

    def _add(
        self, method: str, path: str, answered: Callable[..., Awaitable[Response]], options: dict[str, Any]
    ) -> None:
        name = f"{method.lower()}{path.replace('/', '_').replace('{', '').replace('}', '').replace('-', '_')}"
        served = path.replace(_WORKER, _ANY_WORKER)
        self._prefixed.add_api_route(served, answered, operation_id=name, **options)
        if (method, path) in CONTRACT:
            self._plain.add_api_route(served, answered, include_in_schema=False, **options | {"responses": {}})
        self._added.add((method, path))

    @property
    def prefixed(self) -> Sequence[BaseRoute]:
        """The routes with the prefix in their paths."""
        return self._prefixed.routes

    def include_in(self, app: FastAPI) -> None:
        missing = ROLES.keys() - self._added
        assert not missing, f"the table of roles names routes that do not exist: {sorted(missing)}"
        app.include_router(self._prefixed)
        app.include_router(self._plain)


def _options(method: str, path: str, summary: str | None) -> dict[str, Any]:
    first = (summary or "").partition("\n")[0] or None
    return {
        "methods": [method],
        "response_model": None,
        "summary": (first or path).rstrip("."),
        "description": first,
        "tags": [path.split("/")[1]],
        "openapi_extra": {} if not roles_of(method, path) else {"security": [{"ApiKey": []}, {"Bearer": []}]},
    }


class _JsonRequest(Request):
    """A request whose body was read already, by the parser of the fast routes: that of the framework takes NaN, lone
    surrogates and text in UTF-16."""

    content: Any = None

    async def json(self) -> Any:
        return self.content


class _Route(APIRoute):
    """A route behind its roles. They are checked before anything of the request is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        path = self.path.removeprefix(PREFIX).replace(_ANY_WORKER, _WORKER)
        roles = frozenset[Role]().union(*(roles_of(method, path) for method in self.methods or ()))
        closer = _closer_paths(path, self.methods or set())
        known = [one.alias for one in self.dependant.query_params]

        async def checked(request: Request) -> Response:
            check_role(call_of(request).caller, roles)
            if any(one.fullmatch(request.url.path.removeprefix(PREFIX)) for one in closer):
                raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED)
            _check_query(request, known)
            read = _JsonRequest(request.scope, request.receive)
            body = await read.body()
            read.content = _parsed(body) if body else None
            try:
                return await handle(read)
            except (ApiError, PitbossError, HTTPException, RequestValidationError):
                raise
            except Exception as error:
                _log.exception("a fault in %s %s", request.method, request.url.path)
                raise of_fault() from error

        return checked


def _check_query(request: Request, known: list[str]) -> None:
    """No parameter is a list: which of two values was meant cannot be known. A mistyped one would be ignored."""
    query = request.query_params
    for name in islice(query, bodies.COMPARED):
        close = [] if name in known else get_close_matches(name[:80], known, n=1, cutoff=bodies.ALIKE)
        if close:
            raise ApiError(400, f"There is no parameter {name:.80}", fix=f"did you mean {close[0]}?")
    if len(query) < len(query.multi_items()):
        names = [name for name in query if len(query.getlist(name)) > 1]
        raise ApiError(400, f"{names[0]:.80} is given twice in the URL", fix="name it once")


def _parsed(body: bytes) -> Any:
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        told = [{"field": "body", "message": f"Invalid JSON: {error}"}]
        raise ApiError(400, "Invalid JSON in request body", errors=told) from error


def _answered(endpoint: Endpoint | TextEndpoint) -> Callable[..., Awaitable[Response]]:
    """The endpoint, with its answer in the envelope. It keeps the signature that FastAPI reads."""

    async def run(*, call: Call, **given: Any) -> Response:
        if "body" in given:
            bodies.check_names(given["body"])
        answer = await endpoint(call, **given)
        if isinstance(answer, Stream):
            return StreamingResponse(answer.parts, media_type=answer.kind, headers={"cache-control": "no-store"})
        whole = answer if isinstance(answer, Reply) else success(answer, call.server.clock.wall())
        return response(whole)

    signature = inspect.signature(endpoint)
    hints = get_type_hints(endpoint, include_extras=True)
    own = [
        one.replace(annotation=_annotation(one.name, hints[one.name]), kind=inspect.Parameter.KEYWORD_ONLY)
        for one in signature.parameters.values()
        if one.name != "call"
    ]
    call = inspect.Parameter("call", inspect.Parameter.KEYWORD_ONLY, annotation=CallDep)
    run.__signature__ = inspect.Signature([call, *own])  # type: ignore[attr-defined]
    run.__annotations__ = {"call": CallDep, **{one.name: one.annotation for one in own}}
    run.__doc__ = endpoint.__doc__
    return run


def _annotation(name: str, hint: Any) -> Any:
    """That of a place in the path, unless the endpoint says more than its type: then it is a parameter of the URL."""
    return _PLACES.get(name, hint) if hint in (str, int) else hint


def for_framework(endpoint: Any, body: type[BaseModel], path: str) -> Endpoint:
    """A fast endpoint as the framework calls it: for the OpenAPI document, and for paths that the gate leaves to it."""
    with_task = "{task_id}" in path

    async def run(call: Call, **given: Any) -> Answer:
        call.path = str(given.get("task_id", ""))
        answer: Answer = await endpoint(call, given["body"])
        return answer

    parameters = [inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Call)]
    hints: dict[str, Any] = {"call": Call, "body": body, "return": Answer}
    if with_task:
        hints["task_id"] = str
        parameters.append(inspect.Parameter("task_id", inspect.Parameter.KEYWORD_ONLY, annotation=str))
    if path in ("/tasks", "/tasks/bulk", "/tasks/claim"):
        key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=300)]
        hints["idempotency_key"] = key
        parameters.append(
            inspect.Parameter("idempotency_key", inspect.Parameter.KEYWORD_ONLY, annotation=key, default=None)
        )
    parameters.append(inspect.Parameter("body", inspect.Parameter.KEYWORD_ONLY, annotation=body))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


def allowed_methods(path: str) -> list[str]:
    """Every method that this path has. For /tasks/claim those of a task's path, where "claim" would be an id, do not
    count."""
    path = path.removeprefix(PREFIX)
    found = [(known, method) for method, known in ROLES if template_of(known).fullmatch(path)]
    # The path with the most words of its own fits best.
    best = max((_words(known) for known, _ in found), default=0)
    return sorted({method for known, method in found if _words(known) == best}) or ["GET"]


def _closer_paths(path: str, methods: set[str]) -> list[re.Pattern[str]]:
    """Paths that this one also fits, but that do not have its methods: GET /tasks/claim is not a task "claim"."""
    noun = path.split("/")[1]
    others = {known for _, known in ROLES if known.split("/")[1] == noun and _words(known) > _words(path)}
    return [template_of(known) for known in others if methods.isdisjoint(one for one, at in ROLES if at == known)]


def _words(path: str) -> int:
    return sum("{" not in word for word in path.split("/"))


@cache
def template_of(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"{\w+}", "[^/]+", path.replace(_WORKER, ".+")))


def response(reply: Reply) -> Response:
    made = Response(reply.body, status_code=reply.code)
    made.raw_headers = list(reply.headers)
    return made
