"""Everything in one command: RabbitMQ, a web site, the pipeline, links, a worker killed in ffmpeg, and checks."""

import argparse
import json
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from media_demo import rabbitmq
from media_demo.checks import After, Findings, Sent, checks
from media_demo.processes import HERE, Killed, Manager
from media_demo.progress import Progress, people, say
from media_demo.sending import DeadLetter, Direct, Way
from media_demo.site import GONE, WEBHOOK, Site, serving
from media_demo.videos import UPLOADED, VIDEOS, contact_sheet, make

# person -> page. The last two are bad.
LINKS = {"ana": "/coast", "bruno": "/forest", "carla": "/city", "davi": GONE, "eva": "/damaged"}
SILENT, UPLOADER = "carla", "fabio"
# The first is no JSON. The second is a bug of the original: the word after its links was sent as one of them.
MALFORMED = ("!download /coast", '{"link": "noreply", "retryCount": 0, "from": "gil", "noreply": false}')
_LOOK = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    # A shell starts background jobs with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if missing := [name for name in ("ffmpeg", "ffprobe") if shutil.which(name) is None]:
        sys.exit(f"{' and '.join(missing)} must be installed: apt-get install ffmpeg")
    if not asked.no_broker and find_spec("pika") is None:
        sys.exit("pika must be installed: pip install 'pitboss[amqp]'; or leave RabbitMQ out with --no-broker")
    began = time.monotonic()
    folder: Path = asked.folder.resolve()
    _clear(folder)
    with _started(folder, no_broker=asked.no_broker) as (site, way):
        found = run(folder, site, way)
    return _summary(found, began)


@contextmanager
def _started(folder: Path, *, no_broker: bool) -> Iterator[tuple[Site, Way]]:
    """The web site, and the way of messages: a RabbitMQ of our own, which starts while the videos are made."""
    say(f"ffmpeg makes {len(VIDEOS)} small videos{'' if no_broker else ', while a RabbitMQ for this run starts'}.")
    with _broker(folder, no_broker=no_broker) as server:
        make(folder / "site")
        with serving(Site(folder / "site", _show_notice)) as site:
            say(f"A web site is at {site.url}. Everything is in {folder}.")
            yield site, Direct() if server is None else _over(server)


@contextmanager
def _broker(folder: Path, *, no_broker: bool) -> Iterator[rabbitmq.Server | None]:
    if no_broker:
        yield None
        return
    with rabbitmq.serving(folder / "rabbitmq.log") as server:
        yield server


def _over(server: rabbitmq.Server) -> Way:
    from media_demo.amqp import OverRabbitMQ  # noqa: PLC0415 – pika is needed only with RabbitMQ

    url = server.url()
    say(f"RabbitMQ is at {url}.")
    return OverRabbitMQ(url)


def run(folder: Path, site: Site, way: Way) -> Findings:
    """Start the pipeline, send messages, kill a worker in ffmpeg, wait for the end; then mend a page and retry it."""
    manager = Manager(
        folder,
        *way.options,
        PITBOSS_STORE=f"sqlite:///{folder / 'media.db'}",
        MEDIA_FOLDER=str(folder / "media"),
        MEDIA_NOTIFIER="webhook",
        MEDIA_WEBHOOK=f"{site.url}{WEBHOOK}",
        FFMPEG_PRESET="ultrafast",
        **way.settings,
    )
    progress = Progress()
    uploaded = folder / "media" / "uploads" / f"{UPLOADED}.mp4"
    uploaded.parent.mkdir(parents=True)
    shutil.copy(folder / "site" / uploaded.name, uploaded)
    with manager.running():
        sent = _send(way, manager, site.url)
        with ThreadPoolExecutor() as threads:
            killing = threads.submit(_kill, manager)
            manager.until(lambda: _ended(progress, manager), "all tasks have ended")
            killed = killing.result()
        first = After(manager.tasks(), way.dead_letters(), way.waiting())
        _show_letters(first.letters)
        _mend(site, manager, way)
        manager.until(lambda: _ended(progress, manager), "the mended link is downloaded")
        last = After(manager.tasks(), way.dead_letters(), way.waiting())
    contact_sheet(_strips(folder), folder / "contact_sheet.png")
    return Findings(folder, sent, first, last, site.notices, site.arrivals, killed, manager.exit_code)


def _send(way: Way, manager: Manager, site: str) -> Sent:
    messages = {
        page: {"link": f"{site}{page}", "retryCount": 0, "from": person, "noreply": person == SILENT}
        for person, page in LINKS.items()
    }
    for message in messages.values():
        way.send(manager, "download_queue", message)
    say(f"{len(LINKS)} links are sent: three good ones, a broken one, and one to a page with a corrupt file.")
    malformed = [text for text in MALFORMED if way.send_text("download_queue", text)]
    if malformed:
        say(f"{len(malformed)} malformed messages are sent: {' and '.join(malformed)}")
    file = {"filePath": f"uploads/{UPLOADED}.mp4", "retryCount": 0, "from": UPLOADER, "noreply": False}
    way.send(manager, "cutter_queue", file)
    say("A file that was uploaded is sent straight to the cutter.")
    return Sent(messages[GONE], malformed, SILENT)


def _mend(site: Site, manager: Manager, way: Way) -> None:
    site.mend()
    command = ("dead", "retry", *way.retry, "--yes")
    say(f"\nThe broken page is mended, and the link tried again: pitboss {' '.join(command)}")
    say(textwrap.indent(manager.pitboss(*command), "  "))


def _kill(manager: Manager) -> Killed:
    killed = manager.kill_in_ffmpeg("cutter")
    say(f"  (the cutter, process {killed.worker}, is killed with SIGKILL while its ffmpeg {killed.ffmpeg} runs)")
    return killed


def _ended(progress: Progress, manager: Manager) -> bool:
    """Whether each message has become a task, and all tasks have ended."""
    time.sleep(_LOOK)
    tasks = manager.tasks()
    return progress.show(tasks) and people(tasks) >= {*LINKS, UPLOADER}


def _show_notice(notice: dict[str, Any]) -> None:
    say(f"  ✉ {notice['to']}: {notice['text']}")


def _show_letters(letters: Sequence[DeadLetter]) -> None:
    if letters:
        say("\nDead letters in RabbitMQ:")
    for letter in letters:
        say(f"  {letter.queue:<19} {letter.headers['x-pitboss-reason']}: {letter.headers['x-pitboss-error']}")
        say(f"  {'':<19} {letter.body}")


def _strips(folder: Path) -> list[Path]:
    return [strip for name in VIDEOS for strip in folder.glob(f"media/previews/*{name}-*/strip.png")]


def _summary(found: Findings, began: float) -> int:
    left = {
        "tasks": found.last.tasks,
        "notices": found.notices,
        "requests": [one._asdict() for one in found.arrivals],
        "dead_letters": [one._asdict() for one in found.first.letters],
    }
    for name, values in left.items():
        (found.folder / f"{name}.json").write_text(json.dumps(values, indent=1))
    results = list(checks(found))
    say("\nChecks:")
    for text, passed in results:
        say(f"  {'✓' if passed else '✗ FAILED:'} {text}")
    good = sum(passed for _, passed in results)
    say(f"{good} of {len(results)} checks passed in {time.monotonic() - began:.0f} seconds")
    return 0 if good == len(results) else 1


def _clear(folder: Path) -> None:
    """Delete the files of an earlier run, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    own = ("media.db*", "*.log", "*.json", "contact_sheet.png", "logs", "site", "media")
    for left in [path for pattern in own for path in folder.glob(pattern)]:
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run", description=__doc__)
    parser.add_argument("--no-broker", action="store_true", help="no RabbitMQ: links are stored in Pitboss directly")
    parser.add_argument("--folder", type=Path, default=HERE / "build", help="where the files and the logs go")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
    except rabbitmq.NoServer as error:
        sys.exit(str(error))
