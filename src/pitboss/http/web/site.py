"""The dashboard as one application: it finds the page, lets the caller in, and answers, also with errors, as a page."""

import base64
import json
import logging
import pkgutil
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute

from pitboss.http.answers import ApiError, of_fault, of_pitboss
from pitboss.http.context import Call, Caller, Server
from pitboss.http.gate import EVERYONE, PREFIX_KEY, UI, GateRules, Receive, Scope, Send, counted
from pitboss.http.web import pages
from pitboss.http.web.access import PAGES, VIEWER
from pitboss.http.web.acts import OWN, PICK, Acts, Form
from pitboss.http.web.door import Door, check_page
from pitboss.http.web.live import Live
from pitboss.http.web.palette import commands, palette
from pitboss.http.web.readings import Readings
from pitboss.http.web.rendering import Rendering
from pitboss.http.web.static_files import StaticFiles
from pitboss.http.web.view import View
from pitboss.model.errors import PitbossError
from pitboss.model.filter import parsed
from pitboss.model.text import clean
from pitboss.operate.export import LINES, export_tasks

_FLASH, _THEME = "pitboss_flash", "pitboss_theme"
_FLASH_SECONDS, _YEAR = 30, 365 * 86_400
_LONGEST_FLASH, _MOST_FIELDS = 300, 2000
_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_THEMES = ("light", "dark")
_BRACES = re.compile(r"{(\w+)}")
_TOLD = ("ok", "text", "why", "fix", "undo")
_NOTHING_TOLD = dict.fromkeys(_TOLD, "")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    # With no-referrer a browser would not say that a form comes from here.
    "referrer-policy": "same-origin",
    "x-frame-options": "SAMEORIGIN",
}
_DOWNLOAD = {"content-disposition": 'attachment; filename="tasks.jsonl"'}
_NO_STORE = "no-store"
_log = logging.getLogger("pitboss.http")


class _Place(NamedTuple):
    pattern: re.Pattern[str]
    page: pages.Page


class Site:
    """`api` is the application with the `routes` of the API, which acts go through."""

    def __init__(self, server: Server, rules: GateRules, api: FastAPI, routes: Sequence[BaseRoute]) -> None:
        self._server, self._rules = server, rules
        self._door, self._readings, self._live = Door(server, rules), Readings(), Live(server)
        self._acts = Acts(api, routes)
        self._files = StaticFiles()
        self._places = _places()
        self._paths = frozenset(one.page.path for one in self._places)
        self._rendering = Rendering(self._files, self._paths, rules.environment)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = request.url.path.removeprefix(UI).rstrip("/")
        try:
            self._door.check_host(request)
            answer = await self._answer(request, path)
        except ApiError as error:
            answer = self._refusal(request, path, error)
        except PitbossError as error:
            answer = self._refusal(request, path, of_pitboss(error))
        except Exception:
            _log.exception("a fault in %s %s", request.method, path)
            answer = self._refusal(request, path, of_fault())
        for name, value in _HEADERS.items():
            answer.headers.setdefault(name, value)
        answer.headers.setdefault("cache-control", _NO_STORE)
        await answer(scope, receive, send)

    async def _answer(self, request: Request, path: str) -> Response:
        if request.method == "POST":
            return await self._posted(request, path)
        if request.method not in ("GET", "HEAD"):
            raise ApiError(405, "Method not allowed", why="pages are read with GET, and forms are sent with POST")
        if path.startswith("/static/"):
            return self._files.answer(request, path.removeprefix("/static/"))
        caller = await self._door.caller(request)
        if path == "/login":
            return self._login_page(request, caller)
        if caller is None:
            return self._to_login(request, path)
        view = self._view(request, path, caller)
        if path in ("/live", "/palette"):
            check_page(caller, PAGES[path])
            return self._stream(request) if path == "/live" else JSONResponse(await palette(view))
        if path == "/command":
            check_page(caller, PAGES[path])
            return await self._command(request, view)
        if path == "/export":
            check_page(caller, PAGES[path])
            parts = export_tasks(view.store, parsed(view.query.get("q", "")))
            return StreamingResponse(parts, media_type=LINES, headers=_DOWNLOAD)
        return await self._page(request, view)

    async def _page(self, request: Request, view: View) -> Response:
        if self._files.missing is not None:
            raise self._files.missing
        for pattern, page in self._places:
            found = pattern.fullmatch(view.path)
            if found is not None:
                check_page(view.call.caller, PAGES[page.path])
                view.places = found.groupdict()
                context = await page.read(view)
                # A page that reads itself again leaves the message to the page that is opened.
                flash = _NOTHING_TOLD if request.headers.get("hx-request") else _flash_of(request)
                text = await self._rendering.page(view, page, context, flash, logout=not self._door.keyless)
                answer = Response(text, media_type="text/html")
                if flash["text"]:
                    answer.delete_cookie(_FLASH, path=f"{view.prefix}{UI}")
                return answer
        raise ApiError(
            404, "There is no such page", why=f"nothing is at {view.path[:200]}", fix="choose one on the left"
        )

    async def _posted(self, request: Request, path: str) -> Response:
        self._door.check_source(request)
        form = await self._form(request)
        given = dict(form)
        if path == "/login":
            return await self._login(request, given)
        if path == "/theme":
            return self._theme(request, given)
        caller = await self._door.caller(request)
        if path == "/logout":
            answer = self._back(request, self._prefix(request) + f"{UI}/login")
            self._door.keep(request, answer, "", f"{self._prefix(request)}{UI}")
            return answer
        if caller is None:
            return self._to_login(request, "")
        if not path.startswith("/act/"):
            raise ApiError(405, "Method not allowed", why="this page is only read")
        return await self._act(request, path.removeprefix("/act"), form, caller)

    async def _act(self, request: Request, path: str, form: Form, caller: Caller) -> Response:
        check_page(caller, VIEWER)
        self._check_rate(caller)
        own = {name: value for name, value in form if name.startswith(OWN)}
        view = self._view(request, f"/act{path}", caller)
        if own.get("_confirm") and own.get("_sure") != "1":
            fields = [one for one in form if one[0] != "_sure"]
            picked = sum(name == PICK for name, _ in form)
            question = f"{own['_confirm']} ({picked} selected)" if picked else own["_confirm"]
            text = self._rendering.confirm(view, question, fields, _inside(view, own.get("_back")))
            return Response(text, media_type="text/html")
        method = own.get("_method", "POST").upper()
        if method not in _METHODS:
            raise ApiError(405, "Method not allowed", why=f"{method[:20]} is not one of {', '.join(sorted(_METHODS))}")
        call = Call(self._server, caller, by_hand=True)
        done = await self._acts.run(call, method, path, form)
        self._readings.clear()
        if done.code == HTTPStatus.FORBIDDEN and not request.headers.get("hx-request"):
            # A program would take the way back for success.
            raise ApiError(done.code, done.text, why=done.why, fix=done.fix)
        shown = [name for name in own.get("_show", "").split(",") if name and done.data.get(name)]
        if done.ok and shown:
            values = {name: done.data[name] for name in shown}
            return Response(self._rendering.made(view, done.text, values), media_type="text/html")
        text = own.get("_done") or done.text if done.ok else done.text
        told = {"ok": done.ok, "text": clean(text), "why": clean(done.why), "fix": clean(done.fix)}
        if done.ok and call.undo:
            told["undo"] = view.act(f"/activity/{call.undo}/undo") if request.headers.get("hx-request") else call.undo
        go = _filled(own.get("_go", ""), done.data) if done.ok else ""
        if not request.headers.get("hx-request"):
            return self._flashed(self._back(request, _inside(view, go or own.get("_back"))), view, told)
        if go:
            return self._flashed(JSONResponse({**told, "go": _inside(view, go)}), view, told)
        return JSONResponse(told, status_code=done.code if not done.ok else 200)

    def _check_rate(self, caller: Caller) -> None:
        """Acts count as requests of the API do. Pages do not: they read themselves again."""
        if self._rules.rate is None:
            return
        allowance = self._rules.rate.take(counted(caller, caller.address), self._server.clock.now())
        if not allowance.granted:
            raise ApiError(
                429,
                "Too many requests",
                why=f"{allowance.limit} in {allowance.window} s are answered for one key ([http] rate_limit)",
                fix=f"wait {allowance.reset} s",
            )

    async def _command(self, request: Request, view: View) -> Response:
        """The question before a command of the palette."""
        act = (await commands(view)).get(view.query.get("name", ""))
        if act is None:
            raise ApiError(404, "There is no such command", why="it cannot be done now", fix="reload the page")
        fields = [*act.fields.items(), ("_confirm", act.confirm)]
        asking = self._view(request, f"/act{act.path}", view.call.caller)
        return Response(self._rendering.confirm(asking, act.confirm, fields, view.url("")), media_type="text/html")

    def _flashed(self, answer: Response, view: View, told: Mapping[str, Any]) -> Response:
        """The page that is shown next tells how the act ended."""
        kept = {name: text[:_LONGEST_FLASH] if isinstance(text, str) else text for name, text in told.items()}
        packed = base64.urlsafe_b64encode(json.dumps(kept, ensure_ascii=False).encode()).decode()
        options: dict[str, Any] = {"path": f"{view.prefix}{UI}", "httponly": True, "samesite": "lax"}
        answer.set_cookie(_FLASH, packed, max_age=_FLASH_SECONDS, **options)
        return answer

    def _login_page(self, request: Request, caller: Caller | None, failed: str = "") -> Response:
        view = self._view(request, "/login", caller or Caller("anonymous", EVERYONE, ""))
        place = _inside(view, request.query_params.get("next"))
        if caller is not None and not failed:
            return self._back(request, place)
        text = self._rendering.login(view, place, failed)
        return Response(text, 401 if failed else 200, media_type="text/html")

    async def _login(self, request: Request, given: Mapping[str, str]) -> Response:
        text = given.get("key", "").strip()
        if not await self._door.login(request, text):
            return self._login_page(request, None, "This key opens nothing: it is mistyped, or was revoked.")
        view = self._view(request, "/login", Caller("anonymous", frozenset(), ""))
        answer = self._back(request, _inside(view, given.get("next")))
        self._door.keep(request, answer, text, f"{view.prefix}{UI}")
        return answer

    def _theme(self, request: Request, given: Mapping[str, str]) -> Response:
        view = self._view(request, "", Caller("anonymous", frozenset(), ""))
        answer = self._back(request, _inside(view, given.get("_back")))
        chosen = given.get("theme", "")
        path = f"{view.prefix}{UI}"
        if chosen in _THEMES:
            answer.set_cookie(_THEME, chosen, max_age=_YEAR, path=path, httponly=True, samesite="lax")
        else:
            answer.delete_cookie(_THEME, path=path)
        return answer

    def _to_login(self, request: Request, path: str) -> Response:
        if path in ("/live", "/palette") or request.headers.get("hx-request"):
            raise ApiError(
                401, "You are not logged in", why="the key was revoked, or the session is over", fix="log in again"
            )
        view = self._view(request, path, Caller("anonymous", frozenset(), ""))
        return self._back(request, view.url("/login", next=view.here if path else None))

    def _stream(self, request: Request) -> Response:
        if self._live.full:
            answer = JSONResponse({"error": "too many pages are open"}, status_code=503)
            answer.headers["retry-after"] = "10"
            return answer

        async def allowed() -> bool:
            return await self._door.caller(request) is not None

        headers = {"cache-control": _NO_STORE, "x-accel-buffering": "no"}
        return StreamingResponse(self._live.stream(allowed), media_type="text/event-stream", headers=headers)

    def _refusal(self, request: Request, path: str, error: ApiError) -> Response:
        told = {
            "ok": False,
            "text": error.error[:1].upper() + error.error[1:],
            "why": error.details.get("why", ""),
            "fix": error.details.get("fix", ""),
        }
        if request.headers.get("hx-request") or path in ("/live", "/palette"):
            return JSONResponse(told, status_code=error.code)
        view = self._view(request, path, Caller("anonymous", frozenset(), ""))
        name = HTTPStatus(error.code).phrase
        return Response(self._rendering.error(view, error.code, name, told), error.code, media_type="text/html")

    def _view(self, request: Request, path: str, caller: Caller) -> View:
        theme = request.cookies.get(_THEME, "")
        return View(
            Call(self._server, caller),
            self._readings,
            prefix=self._prefix(request),
            path=path,
            query=dict(request.query_params),
            theme=theme if theme in _THEMES else "",
            paths=self._paths,
        )

    async def _form(self, request: Request) -> Form:
        kind = request.headers.get("content-type", "").partition(";")[0]
        if kind not in ("application/x-www-form-urlencoded", ""):
            raise ApiError(415, "This is not a form", why=f"its type is {kind[:80]}", fix="send the page's own form")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self._rules.max_body:
                raise ApiError(413, "The form is too large", why=f"at most {self._rules.max_body:,} bytes are read")
        try:
            return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        except ValueError as error:
            raise ApiError(400, "The form cannot be read", why=str(error)[:200]) from error

    @staticmethod
    def _prefix(request: Request) -> str:
        return str(request.scope.get(PREFIX_KEY, ""))

    @staticmethod
    def _back(request: Request, place: str) -> Response:
        return RedirectResponse(place, status_code=303, headers={"cache-control": _NO_STORE})


def _places() -> list[_Place]:
    """Every page. One that is not in the table of roles fails here, when the server starts."""
    found = []
    for module in pkgutil.iter_modules(pages.__path__, f"{pages.__name__}."):
        for page in import_module(module.name).PAGES:
            if page.path not in PAGES:
                raise ValueError(f"web/access.py does not say who may see {page.path}")
            found.append(_Place(re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", page.path)), page))
    return sorted(found, key=lambda one: one.page.path.count("{"))


def _filled(place: str, data: Mapping[str, Any]) -> str:
    """The address with what the act answered ("/ui/tasks/{id}"); empty if it did not answer that."""
    for name in _BRACES.findall(place):
        value = data.get(name)
        text = str((value.get("id") if isinstance(value, Mapping) else value) or "")
        if not text:
            return ""
        place = place.replace(f"{{{name}}}", quote(text, safe=""))
    return place


def _inside(view: View, place: str | None) -> str:
    """An address to go on with, if it is one of this dashboard; otherwise its first page."""
    base = f"{view.prefix}{UI}"
    parts = urlsplit(place or "")
    own = not parts.scheme and not parts.netloc and (parts.path == base or parts.path.startswith(f"{base}/"))
    return place if place and own and "\\" not in place and place.isprintable() else base


def _flash_of(request: Request) -> dict[str, str]:
    """How the act ended that led to this page. A browser may send anything: it is shown as plain text."""
    try:
        found = json.loads(base64.urlsafe_b64decode(request.cookies.get(_FLASH, "")))
        return {name: str(found.get(name) or "") for name in _TOLD}
    except (ValueError, AttributeError):
        return _NOTHING_TOLD
