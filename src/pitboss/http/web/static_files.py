"""The files that pages load. All are read once; their URLs change with their content, so that browsers keep them."""

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from pitboss.http.answers import ApiError
from pitboss.model.errors import PitbossError

FOLDER = Path(__file__).parent / "static"
_VENDOR = "vendor"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HTMX = "vendor/htmx.org-4.0.1/htmx.min.js"
UPLOT = ("vendor/uplot-1.6.32/uPlot.iife.min.js", "vendor/uplot-1.6.32/uPlot.min.css")


class File(NamedTuple):
    kind: str
    plain: bytes
    packed: bytes


class MissingFiles(PitbossError):
    """The libraries of the dashboard were not brought into the package."""


class StaticFiles:
    """`address` gives the URL of a file below /ui/static; files of the dashboard itself share one version."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = _read(folder)
        missing = [name for name in (HTMX, *UPLOT) if name not in self._files]
        self.missing = (
            MissingFiles(
                "the libraries of the dashboard are missing",
                why=f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in {folder}",
                fix="install Pitboss again, which brings them: python -m pip install --editable .",
            )
            if missing
            else None
        )
        own = (one.plain for name, one in self._files.items() if not name.startswith(_VENDOR))
        self._version = hashlib.blake2b(b"".join(own), digest_size=5).hexdigest()

    def address(self, name: str) -> str:
        if name not in self._files:
            raise ValueError(f"there is no file {name}")
        return f"/static/{name}" if name.startswith(_VENDOR) else f"/static/own-{self._version}/{name}"

    def answer(self, request: Request, path: str) -> Response:
        """The file at this path below /static."""
        name = path if path.startswith(_VENDOR) else path.partition("/")[2]
        file = self._files.get(name)
        if file is None:
            raise ApiError(404, "There is no such file", fix="reload the page")
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, media_type=file.kind, headers={**headers, "content-encoding": "gzip"})
        return Response(file.plain, media_type=file.kind, headers=headers)


@cache
def _read(folder: Path) -> dict[str, File]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _TYPES and path.is_file():
            plain = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            found[name] = File(_TYPES[path.suffix], plain, gzip.compress(plain, mtime=0))
    return found
