"""Forms of pages become requests of the API: the same routes, with their roles, checks and audit log."""

import json
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from urllib.parse import urlencode

import msgspec
from fastapi.routing import APIRoute
from starlette.routing import Match

from pitboss.http.answers import ApiError
from pitboss.http.context import Call
from pitboss.http.gate import PREFIX, App, Message

# What a form says to this adapter and not to the route.
OWN = "_"
# The tasks that were selected on a page: they become the filter of the route.
PICK = "_pick"
_YES = frozenset({"on", "true", "yes", "1"})
Form = Sequence[tuple[str, str]]


class Done(NamedTuple):
    """How an act ended. `text` says it in one sentence; an error has why and how to fix it."""

    code: int
    text: str
    why: str = ""
    fix: str = ""
    data: Mapping[str, Any] = {}

    @property
    def ok(self) -> bool:
        return self.code < 400  # noqa: PLR2004 - HTTP


class Acts:
    """`api` is the application that has the routes; it is called without a network."""

    def __init__(self, api: App, routes: Sequence[Any]) -> None:
        self._api, self._routes = api, [one for one in routes if isinstance(one, APIRoute)]

    async def run(self, call: Call, method: str, path: str, form: Form) -> Done:
        """The route of the API at this path, with the fields of the form as its body."""
        route = self._route(method, f"{PREFIX}{path}")
        texts: dict[str, list[str]] = {}
        for name, text in form:
            if not name.startswith(OWN):
                texts.setdefault(name, []).append(text)
        if PICK in dict(form):
            texts["filter"] = [f"id:{','.join(text for name, text in form if name == PICK)}"]
        parameters = {one.alias for one in route.dependant.query_params}
        query = {name: found[-1] for name, found in texts.items() if name in parameters and found[-1]}
        body = _body(route, {name: found for name, found in texts.items() if name not in parameters})
        return await self._asked(call, method, f"{PREFIX}{path}", urlencode(query).encode(), body)

    def _route(self, method: str, path: str) -> APIRoute:
        scope = {"type": "http", "method": method, "path": path, "root_path": ""}
        for route in self._routes:
            if route.matches(scope)[0] is Match.FULL:
                return route
        raise ApiError(404, "There is no such act", why=f"the API has no {method} {path[:200]}", fix="reload the page")

    async def _asked(self, call: Call, method: str, path: str, query: bytes, body: bytes) -> Done:
        parts: list[bytes] = []
        code = 500

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            else:
                parts.append(message.get("body", b""))

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "headers": headers if body else [],
            "client": (call.caller.address, 0),
            "server": None,
            "call": call,
        }
        await self._api(scope, receive, send)
        return _done(code, msgspec.json.decode(b"".join(parts)))


def _done(code: int, answer: Mapping[str, Any]) -> Done:
    if answer.get("success"):
        return Done(code, str(answer.get("message", "Done")), data=answer.get("data", {}))
    details = answer.get("details", {})
    faults = details.get("errors", [])
    text = str(answer.get("error", "It did not work"))
    # The first fault is the error's sentence already.
    more = [f"{one['field']}: {one['message']}" for one in faults[:3] if one["message"] not in text]
    why = details.get("why", "") or "; ".join(more)
    fix = details.get("fix", "") or ("correct it, and send it again" if faults else "")
    return Done(code, text, why=why, fix=fix)


def _body(route: APIRoute, texts: Mapping[str, list[str]]) -> bytes:
    """The JSON that the route's model wants. A field that was left empty is not sent."""
    if route.body_field is None:
        return b""
    fields = getattr(_model(route.body_field.field_info.annotation), "model_fields", {})
    found: dict[str, Any] = {}
    for name, given in texts.items():
        whole, dot, key = name.partition(".")
        if dot and whole in fields:
            # "limits.per_hour" is an entry of the object "limits".
            found.setdefault(whole, {}).update({key: given[-1].strip()} if given[-1].strip() else {})
            continue
        field = fields.get(name)
        value = _value(name, Any if field is None else field.annotation, given)
        if value is not None or (field is not None and f"{OWN}null" in given):
            found[name] = value
    return json.dumps(found, ensure_ascii=False).encode() if found or texts else b""


def _model(annotation: Any) -> Any:
    """The model inside Annotated and Optional."""
    if hasattr(annotation, "model_fields"):
        return annotation
    inner = (_model(one) for one in get_args(annotation) if one is not type(None))
    return next((one for one in inner if one is not None), None)


def _value(name: str, annotation: Any, given: Sequence[str]) -> Any:
    """The value that the texts of a field mean; None for nothing. Text that does not fit is sent as it is: the route
    says what is wrong with it."""
    text = given[-1].strip()
    if text == f"{OWN}null":
        return None
    kinds = _kinds(annotation)
    if kinds & {list, tuple, set, frozenset}:
        return _list(given)
    if bool in kinds and kinds <= {bool}:
        return text.lower() in _YES
    if not text:
        return None
    if dict in kinds and not kinds & {str, object}:
        _check_json(name, text)
    if kinds & {dict, object}:
        return _json(text)
    for kind in (int, float):
        if kind in kinds and (number := _number(kind, text)) is not None:
            return number
    return text


def _kinds(annotation: Any) -> set[type]:
    """The plain types that a value may have."""
    origin = get_origin(annotation)
    if annotation is Any:
        return {object}
    if origin is Annotated:
        return _kinds(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return set().union(*(_kinds(one) for one in get_args(annotation))) - {type(None)}
    if origin is Literal:
        return {type(one) for one in get_args(annotation)}
    return {origin or annotation} if isinstance(origin or annotation, type) else {str}


def _list(given: Sequence[str]) -> Any:
    """JSON, or one item for each field of that name, each line and each comma."""
    if len(given) == 1 and given[0].lstrip().startswith("["):
        return _json(given[0])
    return [part.strip() for text in given for line in text.splitlines() for part in line.split(",") if part.strip()]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_json(name: str, text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ApiError(
            400, f"{name} is not JSON", why=f"{place}: {error.msg}", fix="correct it, and send it again"
        ) from error


def _number(kind: type, text: str) -> float | int | None:
    try:
        found: float | int = kind(text)
    except ValueError:
        return None
    return found
