"""A virtual environment for every peer, with pinned versions."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"

_REDIS = ("redis==8.1.0", "hiredis==3.5.0")
PINS: dict[str, tuple[str, ...]] = {
    "celery": ("celery==5.7.0", "kombu==5.7.0", "packaging==26.3", *_REDIS),
    "flower": ("flower==2.2.0", "celery==5.7.0", "kombu==5.7.0", "packaging==26.3", *_REDIS),
    "dramatiq": ("dramatiq==2.2.1", *_REDIS),
    "dramatiq-rabbitmq": ("dramatiq==2.2.1", "pika==1.4.4"),
    "huey": ("huey==3.5.4", *_REDIS),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "uvloop==0.23.0", *_REDIS),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary]==3.3.8", "psycopg-pool==3.3.3"),
    # With typer 0.29, `pgq run` of this version does not start.
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0", "typer==0.28.0"),
    # The extra `web` lacks python-multipart, without which the form that retries jobs is refused.
    "pgqueuer-web": (
        "pgqueuer[web]==1.6.0",
        "asyncpg==0.32.0",
        "uvloop==0.23.0",
        "typer==0.28.0",
        "fastapi==0.163.0",
        "python-multipart==0.0.33",
    ),
}


def interpreter(name: str) -> Path:
    """The Python of an environment, created if it is missing or has other versions. Pitboss uses the current one.

    A path is another checkout of Pitboss with its own `.venv`.
    """
    if name == "pitboss":
        return Path(sys.executable)
    if "/" in name:
        return Path(name) / ".venv" / "bin" / "python"
    folder = BUILD / "envs" / name
    stamp = folder / "pins.txt"
    wanted = "\n".join((sys.version, *PINS[name]))
    python = folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(PINS[name])}", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINS[name]]
        subprocess.run(command, check=True)
        stamp.write_text(wanted)
    return python
