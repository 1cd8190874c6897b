"""The media pipeline with the real ffmpeg: what becomes of good and bad files and pages, and what people are told."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from media_demo.__main__ import MALFORMED
from media_demo.site import Site, serving
from media_demo.videos import make, seconds_of
from media_pipeline.ffmpeg import ffmpeg
from media_pipeline.files import appearing, name_of
from media_pipeline.notices import failed
from media_pipeline.notifier import notifier
from media_pipeline.processors.download_scraper import VideoFinder
from media_pipeline.settings import Settings, WrongSetting
from media_pipeline.workers import app, cutter, download, notify, preview
from pitboss import DeadTask
from pitboss.model.canonical import from_json
from pitboss.model.failure import DeadError
from pitboss.model.task import Task
from pitboss.testing.sandbox import Sandbox, sandbox

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "media_pipeline"
OWN_SETTINGS = ("PITBOSS_", "MEDIA_", "FFMPEG_", "DOWNLOAD_WORKERS")
UNREADABLE = "Segmentation failed: bad.mp4 (bad.mp4 cannot be read as a video: "


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    make(folder)
    return folder


@pytest.fixture
def media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The media folder of one test."""
    for name in os.environ:
        if name.startswith(OWN_SETTINGS[1:]):
            monkeypatch.delenv(name)
    folder = tmp_path / "media"
    folder.mkdir()
    monkeypatch.setenv("MEDIA_FOLDER", str(folder))
    monkeypatch.setenv("FFMPEG_PRESET", "ultrafast")
    return folder


@pytest.fixture
def box(media: Path) -> Iterator[Sandbox]:
    with sandbox(app) as opened:
        yield opened


@pytest.fixture
def hurry(box: Sandbox) -> Iterator[None]:
    """Move the clock 20 times as fast as time: a lease that a handler takes itself waits for it."""
    over = threading.Event()

    def move() -> None:
        while not over.wait(0.005):
            box.clock.advance("100ms")

    moving = threading.Thread(target=move)
    moving.start()
    yield
    over.set()
    moving.join()


@pytest.fixture
def site(videos: Path, media: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The stand-in site, which gets the notices too."""
    with serving(Site(videos, lambda notice: None)) as served:
        monkeypatch.setenv("MEDIA_NOTIFIER", "webhook")
        monkeypatch.setenv("MEDIA_WEBHOOK", f"{served.url}/notices")
        yield served


def message(**fields: Any) -> Any:
    """A message as JSON has it, from a producer of the document."""
    return {"retryCount": 0, "from": "ana", "noreply": False, **fields}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def result(task: Task) -> Any:
    assert task.result is not None, task
    return from_json(task.result)


def half_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(".") or path.name.endswith(".part")]


# The cutter and the preview.


def test_75_seconds_become_three_segments_and_a_preview(box: Sandbox, videos: Path, media: Path) -> None:
    shutil.copy(videos / "coast.mp4", media)
    cutter.enqueue(message=message(filePath="coast.mp4"))
    cut, made = (task for task in box.drain() if task.handler in ("cutter", "preview"))
    segments = [media / name for name in result(cut)["segments"]]
    assert [round(seconds_of(path)) for path in segments] == [30, 30, 15]
    assert [path.name for path in segments] == ["coast_000.mp4", "coast_001.mp4", "coast_002.mp4"]
    assert from_json(made.params)["message"] == {"filePath": "coast.mp4", "from": "ana", "noreply": False}
    assert round(seconds_of(media / result(made)["preview"])) == 4
    assert (media / result(made)["strip"]).read_bytes().startswith(b"\x89PNG")
    assert half_files(media) == []


def test_a_short_video_has_no_segments_and_goes_on_to_the_preview(box: Sandbox, videos: Path, media: Path) -> None:
    shutil.copy(videos / "harbour.mp4", media)
    cutter.enqueue(message=message(filePath="harbour.mp4"))
    cut, made = (task for task in box.drain() if task.handler in ("cutter", "preview"))
    assert result(cut) == {"segments": []}
    assert (media / result(made)["preview"]).is_file()
    assert not list((media / "segments").iterdir())


def corrupt_file(kind: str, good: Path, bad: Path) -> None:
    match kind:
        case "random bytes":
            bad.write_bytes(bytes(range(256)) * 100)
        case "no data":
            bad.write_bytes(b"")
        case "cut off":
            bad.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
        case "sound only":
            command = ["ffmpeg", "-v", "error", "-i", str(good), "-vn", "-c", "copy", str(bad)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        case "a playlist that names another file":
            bad.write_text(f"#EXTM3U\n#EXTINF:30,\n{good}\n#EXT-X-ENDLIST\n")


@pytest.mark.parametrize(
    "kind", ["random bytes", "no data", "cut off", "sound only", "a playlist that names another file"]
)
def test_a_corrupt_file_fails_at_once_and_its_person_is_told(
    kind: str, box: Sandbox, videos: Path, media: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corrupt_file(kind, videos / "forest.mp4", media / "bad.mp4")
    cutter.enqueue(message=message(filePath="bad.mp4"))
    box.drain_all()
    (dead,) = box.tasks(state="failed")
    assert (dead.handler, dead.attempts) == ("cutter", 1)
    assert f"to ana: {UNREADABLE}" in capsys.readouterr().out
    assert files(media) == [media / "bad.mp4"]


@pytest.mark.parametrize("name", ["../secret.mp4", "/etc/hostname"])
def test_a_file_outside_the_media_folder_is_refused(name: str, box: Sandbox, media: Path) -> None:
    cutter.enqueue(message=message(filePath=name))
    box.drain()
    (dead,) = box.tasks(state="failed")
    assert dead.error is not None
    assert dead.error.message == f"{name} is not in the media folder"


def test_an_attempt_that_died_after_its_last_file_is_not_done_again(box: Sandbox, videos: Path, media: Path) -> None:
    shutil.copy(videos / "coast.mp4", media)
    handle = cutter.enqueue(message=message(filePath="coast.mp4", noreply=True))
    folder = media / "segments" / f"coast-{handle.id[-12:]}"
    folder.mkdir(parents=True)
    (folder / "coast_000.mp4").write_bytes(b"written by the first attempt")
    box.drain()
    assert result(handle.task()) == {"segments": [f"segments/{folder.name}/coast_000.mp4"]}


def test_a_folder_appears_whole_and_leftovers_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "segments" / "coast"
    with appearing(target, 1) as hidden:
        (hidden / "000.mp4").write_text("all")
        assert not target.exists()
    assert files(tmp_path) == [target / "000.mp4"]
    # As a worker leaves it that was killed.
    left = tmp_path / "segments" / ".forest.1"
    left.mkdir()
    (left / "000.mp4").write_text("half")
    with suppress(ZeroDivisionError), appearing(target.with_name("forest"), 2):
        assert not left.exists()
        raise ZeroDivisionError
    assert files(tmp_path) == [target / "000.mp4"]


async def test_a_cancelled_ffmpeg_is_gone(tmp_path: Path) -> None:
    target = tmp_path / "endless.mp4"
    began = asyncio.Event()
    work = ffmpeg("it", "-f", "lavfi", "-i", "testsrc=size=16x16", str(target), report=lambda _: began.set())
    running = asyncio.create_task(work)
    await asyncio.wait_for(began.wait(), 30)
    assert processes_of(tmp_path)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[str]:
    """The command lines of ffmpeg processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0].startswith("ff") and any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found


# Downloads.


@pytest.mark.usefixtures("hurry")
def test_one_link_many_files_each_goes_on_to_the_cutter(box: Sandbox, site: Site, media: Path) -> None:
    handle = download.enqueue(message=message(link=f"{site.url}/coast"))
    box.drain_all()
    results = result(handle.task())["results"]
    assert [Path(name).name for name in results] == ["01-coast.mp4", "02-harbour.mp4"]
    assert (media / results[0]).read_bytes() == (site.files / "coast.mp4").read_bytes()
    cuts = box.assert_enqueued(cutter, 2)
    assert [from_json(task.params)["message"]["filePath"] for task in cuts] == results
    assert {task.parent for task in cuts} == {handle.id}
    box.assert_enqueued(preview, 2)
    texts = [notice["text"] for notice in site.notices]
    assert f"Downloaded 2 videos from {site.url}/coast: 01-coast.mp4, 02-harbour.mp4" in texts
    assert "Cut 01-coast.mp4 into 3 segments" in texts
    assert "02-harbour.mp4 is short and stays whole" in texts


@pytest.mark.usefixtures("hurry")
def test_a_link_that_is_a_video_is_its_own_page(box: Sandbox, site: Site, media: Path) -> None:
    handle = download.enqueue(message=message(link=f"{site.url}/files/harbour.mp4", noreply=True))
    box.drain_all()
    assert [Path(name).name for name in result(handle.task())["results"]] == ["01-harbour.mp4"]


@pytest.mark.usefixtures("hurry")
def test_a_broken_link_fails_at_once_and_its_person_is_told(box: Sandbox, site: Site) -> None:
    link = f"{site.url}/gone"
    download.enqueue(message=message(link=link))
    box.drain_all()
    (dead,) = box.tasks(state="failed")
    assert (dead.handler, dead.attempts) == ("download", 1)
    (notice,) = site.notices
    assert notice["text"] == f"Download failed: {link} (404 Not Found: {link})"
    assert notice["payload"] == {"error": f"404 Not Found: {link}", "link": link, "from": "ana"}
    assert (notice["type"], notice["queueName"]) == ("error", "download_queue_dlq")


@pytest.mark.usefixtures("hurry")
def test_a_pause_that_the_site_asks_for_costs_no_attempt(box: Sandbox, site: Site) -> None:
    handle = download.enqueue(message=message(link=f"{site.url}/city", noreply=True))
    box.drain_all()
    assert (handle.task().state, handle.task().attempts) == ("completed", 1)
    assert [one.status for one in site.arrivals if one.path == "/city"] == [429, 200]


@pytest.mark.usefixtures("hurry")
def test_robots_txt_is_honoured(box: Sandbox, site: Site) -> None:
    download.enqueue(message=message(link=f"{site.url}/private/page", noreply=True))
    box.drain_all()
    (dead,) = box.tasks(state="failed")
    assert dead.error is not None
    assert "robots.txt" in dead.error.message
    assert [one.path for one in site.arrivals] == ["/robots.txt"]
    assert all(one.client.startswith("MediaPipeline/1.0 (+https://") for one in site.arrivals)


@pytest.mark.usefixtures("hurry")
def test_a_file_that_is_too_large_leaves_nothing(
    box: Sandbox, site: Site, media: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDIA_MAX_MB", "1")
    download.enqueue(message=message(link=f"{site.url}/forest", noreply=True))
    box.drain_all()
    (dead,) = box.tasks(state="failed")
    assert dead.error is not None
    assert "has more than 1 MB" in dead.error.message
    assert files(media) == []


@pytest.mark.usefixtures("hurry")
def test_what_an_earlier_attempt_has_fetched_is_not_fetched_again(box: Sandbox, site: Site, media: Path) -> None:
    handle = download.enqueue(message=message(link=f"{site.url}/coast", noreply=True))
    folder = media / "downloads" / handle.id[-12:]
    folder.mkdir(parents=True)
    # A short one, which is not cut.
    shutil.copy(site.files / "harbour.mp4", folder / "01-coast.mp4")
    (folder / "02-harbour.mp4.part").write_bytes(b"half")
    box.drain_all()
    assert handle.task().state == "completed"
    assert [one.path for one in site.arrivals if one.path.startswith("/files/")] == ["/files/harbour.mp4"]
    assert half_files(media) == []


def test_videos_of_a_page() -> None:
    finder = VideoFinder("https://example.org/a/page")
    finder.feed(
        '<video src="one.mp4"><source src="/two.webm"></video><source src="picture.avif">'
        '<a href="three.MP4?size=large#here">3</a><a href="one.mp4">again</a>'
        '<a href="page.html">no</a><a href="file:///etc/x.mp4">no</a><a>no</a><video></video>'
    )
    assert finder.found == [
        "https://example.org/a/one.mp4",
        "https://example.org/two.webm",
        "https://example.org/a/three.MP4?size=large",
    ]


def test_names_of_files() -> None:
    assert name_of("https://example.org/a/My%20clip%2F%25.mp4?x=1") == "_.mp4"
    assert name_of("https://example.org/a/My%20clip.mp4") == "My_clip.mp4"
    assert name_of("https://example.org/..") == "video"
    assert name_of("https://example.org/") == "video"


@pytest.mark.parametrize("link", ["ftp://example.org/a", "javascript:alert(1)", "", "https://"])
def test_a_link_that_is_none_is_refused_at_the_door(link: str, box: Sandbox) -> None:
    with pytest.raises(Exception, match="link"):
        download.enqueue(message=message(link=link))


# What people are told.


def dead(queue: str, error: str, **fields: Any) -> DeadTask:
    return DeadTask("1", "it", queue, {"message": message(**fields)}, error=DeadError("error", error))


def test_the_text_of_a_failure_names_its_queue() -> None:
    told = [
        failed(dead("download_queue", "404", link="https://example.org/a")),
        failed(dead("cutter_queue", "cut off", filePath="downloads/1/a.mp4")),
        failed(dead("preview_queue", "cut off", filePath="downloads/1/a.mp4")),
    ]
    assert [notice and notice.text for notice in told] == [
        "Download failed: https://example.org/a (404)",
        "Segmentation failed: a.mp4 (cut off)",
        "Preview failed: a.mp4 (cut off)",
    ]
    assert told[1] is not None
    assert told[1].payload == {"error": "cut off", "filePath": "downloads/1/a.mp4", "from": "ana"}


def test_noreply(box: Sandbox, site: Site, videos: Path, media: Path) -> None:
    shutil.copy(videos / "harbour.mp4", media)
    cutter.enqueue(message=message(filePath="harbour.mp4", noreply=True))
    cutter.enqueue(message=message(filePath="missing.mp4", noreply=True))
    box.drain_all()
    assert len(box.tasks(state="failed")) == 1
    box.refute_enqueued(notify)
    assert site.notices == []


def test_unknown_fields_of_a_message_are_kept(box: Sandbox, media: Path) -> None:
    handle = cutter.enqueue(message=message(filePath="missing.mp4", traceId="abc"))
    stored = from_json(handle.task().params)["message"]
    assert stored == {"filePath": "missing.mp4", "from": "ana", "noreply": False, "retryCount": 0, "traceId": "abc"}


class Memory:
    """A notifier of one's own, as MEDIA_NOTIFIER=module:class names it."""

    sent: list[str]

    def __init__(self, settings: Settings) -> None:
        self.sent = []

    async def send(self, notice: Any, key: str) -> None:
        self.sent.append(notice.text)


def test_notifiers() -> None:
    own = notifier(Settings(Path(), notifier=f"{__name__}:Memory"))
    assert type(own).__name__ == "Memory"
    for wrong in (Settings(Path(), notifier="pigeon"), Settings(Path(), notifier="webhook")):
        with pytest.raises(WrongSetting, match="MEDIA_"):
            notifier(wrong)


def test_settings() -> None:
    assert Settings.load({}).download_workers == 2
    assert Settings.load({"DOWNLOAD_WORKERS": "5"}).download_workers == 5
    with pytest.raises(WrongSetting, match="DOWNLOAD_WORKERS=many"):
        Settings.load({"DOWNLOAD_WORKERS": "many"})


# All of it: links go through RabbitMQ, and a worker is killed in ffmpeg on the way.


class Run(NamedTuple):
    """A demonstration that has ended, and the folder that it left."""

    folder: Path
    code: int
    output: str

    def left(self, name: str) -> Any:
        return json.loads((self.folder / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """One run with RabbitMQ and one without, side by side: for most of their time they wait."""
    started = {name: start(tmp_path_factory.mktemp("demo"), *options) for name, options in RUNS.items()}
    try:
        return {name: ended(folder, process) for name, (folder, process) in started.items()}
    finally:
        for _, process in started.values():
            process.terminate()


RUNS: dict[str, tuple[str, ...]] = {"rabbitmq": (), "no-broker": ("--no-broker",)}


def start(folder: Path, *options: str) -> tuple[Path, subprocess.Popen[str]]:
    others = {name: value for name, value in os.environ.items() if not name.startswith(OWN_SETTINGS)}
    command = [str(EXAMPLE / "run"), *options, "--folder", str(folder)]
    env = {**others, "PYTHON": sys.executable}
    return folder, subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(folder: Path, process: subprocess.Popen[str]) -> Run:
    output, _ = process.communicate(timeout=100)
    return Run(folder, process.returncode, output)


@pytest.fixture
def through_rabbitmq(runs: dict[str, Run]) -> Run:
    return runs["rabbitmq"]


@pytest.mark.parametrize("name", RUNS)
def test_the_demonstration(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    passed = re.search(r"(\d+) of (\d+) checks passed", run.output)
    assert passed is not None, run.output
    assert passed[1] == passed[2], run.output
    assert run.code == 0


@pytest.mark.parametrize("name", RUNS)
def test_a_worker_killed_in_ffmpeg_loses_nothing_and_leaves_nothing(name: str, runs: dict[str, Run]) -> None:
    run = runs[name]
    assert "is killed with SIGKILL while its ffmpeg" in run.output
    assert processes_of(run.folder) == []
    assert half_files(run.folder / "media") == []
    states = [(task["type"], task["state"], task["lost_claims"]) for task in run.left("tasks")]
    # The corrupt file is the only task that failed, because the broken link was mended and tried again.
    assert sorted(state for state in states if state[1] != "completed" or state[2]) == [
        ("cutter", "completed", 1),
        ("cutter", "failed", 0),
    ]


def test_75_seconds_become_three_segments_and_a_preview_through_rabbitmq(through_rabbitmq: Run) -> None:
    media = through_rabbitmq.folder / "media"
    segments = sorted((media / "segments").glob("*/*"), key=lambda path: path.name)
    assert [path.name for path in segments] == [f"01-coast_00{n}.mp4" for n in range(3)] + [
        f"01-forest_00{n}.mp4" for n in range(2)
    ]
    assert [round(seconds_of(path)) for path in segments] == [30, 30, 15, 30, 10]
    (clip,) = (media / "previews").glob("01-coast-*/preview.mp4")
    assert round(seconds_of(clip)) == 4
    assert len(list((media / "previews").glob("*/strip.png"))) == 6
    assert (through_rabbitmq.folder / "contact_sheet.png").stat().st_size > 1000


def test_the_two_bad_inputs_are_in_their_dead_letter_queues(through_rabbitmq: Run) -> None:
    letters = [one for one in through_rabbitmq.left("dead_letters") if "x-pitboss-task" in one["headers"]]
    link = json.loads(letters[0]["body"])["link"]
    file = json.loads(letters[1]["body"])["filePath"]
    unreadable = "01-corrupt.mp4 cannot be read as a video: it has no pictures, or no length"
    texts = [(one["queue"], json.loads(one["body"])) for one in letters]
    assert texts == [
        ("download_queue_dlq", {"link": link, "retryCount": 0, "from": "davi", "noreply": False}),
        ("cutter_queue_dlq", {"filePath": file, "from": "eva", "noreply": False}),
    ]
    failed_tasks = [one["headers"].pop("x-pitboss-task") for one in letters]
    known = {task["id"]: task["type"] for task in through_rabbitmq.left("tasks")}
    assert [known[task] for task in failed_tasks] == ["download", "cutter"]
    headers = [{key.removeprefix("x-pitboss-"): value for key, value in one["headers"].items()} for one in letters]
    dead = {"reason": "not retryable", "attempts": 1}
    assert headers == [
        {"source": "download", "handler": "download", "category": "refused", "error": f"404 Not Found: {link}", **dead},
        {"source": "cutter", "handler": "cutter", "category": "corrupt", "error": unreadable, **dead},
    ]
    assert (link.endswith("/lake"), file.endswith("/01-corrupt.mp4")) == (True, True)
    texts_of_errors = [one["text"] for one in through_rabbitmq.left("notices") if one["type"] == "error"]
    assert texts_of_errors == [
        f"Download failed: {link} (404 Not Found: {link})",
        f"Segmentation failed: 01-corrupt.mp4 ({unreadable})",
    ]


def test_malformed_messages_are_in_the_dead_letter_queue_as_they_came(through_rabbitmq: Run) -> None:
    letters = [one for one in through_rabbitmq.left("dead_letters") if "x-pitboss-task" not in one["headers"]]
    assert [(one["queue"], one["body"]) for one in letters] == [("download_queue_dlq", text) for text in MALFORMED]
    assert {one["headers"]["x-pitboss-reason"] for one in letters} == {"malformed"}
    no_json, no_link = (one["headers"]["x-pitboss-error"] for one in letters)
    assert "not JSON" in no_json
    assert "message.link" in no_link


def test_the_server_ends_with_the_command(tmp_path: Path) -> None:
    """Also if the command is killed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_SERVER, str(tmp_path / "rabbitmq.log")],
        cwd=EXAMPLE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    with holder, holder.stdout:
        servers = [psutil.Process(int(pid)) for pid in holder.stdout.readline().split()]
        holder.kill()
    assert len(servers) == 2
    _, alive = psutil.wait_procs(servers, timeout=20)
    assert alive == []


HOLD_A_SERVER = """
import sys, time
from pathlib import Path
from media_demo.rabbitmq import serving
with serving(Path(sys.argv[1])):
    print(*(pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()), flush=True)
    time.sleep(60)
"""
