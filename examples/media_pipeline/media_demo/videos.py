"""Makes the videos of the demonstration, and the contact sheet of its results, with ffmpeg."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

# name -> (a source of pictures that ffmpeg has, seconds). Small pictures, so that the whole run takes seconds.
VIDEOS = {
    "coast": ("testsrc=size=320x180:rate=10", 75),
    "harbour": ("gradients=size=320x180:rate=10:speed=0.05:seed=1", 8),
    "forest": ("testsrc2=size=320x180:rate=10", 40),
    "city": ("mandelbrot=size=160x120:rate=5", 12),
    "river": ("cellauto=size=160x90:rate=10:rule=110:seed=2", 10),
    "lake": ("life=size=160x90:rate=5:seed=7:mold=10:life_color=#60c0ff:death_color=#103060:mold_color=#204080", 6),
}
CORRUPT = "corrupt"
# Of these the one is already there when the pipeline starts, and the other on a page that is broken at first.
UPLOADED, MENDED = "river", "lake"


def make(folder: Path) -> None:
    """One file for each, with sound, and one that only looks like a video."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (pictures, seconds) in VIDEOS.items():
        _ffmpeg(
            *("-f", "lavfi", "-i", pictures, "-f", "lavfi", "-i", "sine=frequency=330:sample_rate=8000"),
            *("-t", str(seconds), "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac"),
            *("-movflags", "+faststart", str(folder / f"{name}.mp4")),
        )
    whole = (folder / "harbour.mp4").read_bytes()
    (folder / f"{CORRUPT}.mp4").write_bytes(whole[:40] + bytes(len(whole) - 40))


def seconds_of(path: Path) -> float:
    command = ["ffprobe", "-v", "error", "-show_entries", "format=duration", "-of", "json", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["format"]["duration"])


def contact_sheet(strips: Sequence[Path], target: Path) -> None:
    """All strips below each other, in one picture."""
    inputs = [word for strip in strips for word in ("-i", str(strip))]
    joined = "".join(f"[{number}]" for number in range(len(strips)))
    # Each becomes a picture of one sequence, of which `tile` makes the sheet.
    graph = f"{joined}concat=n={len(strips)},tile=1x{len(strips)}:margin=4:padding=4"
    _ffmpeg(*inputs, "-filter_complex", graph, "-frames:v", "1", str(target))


def _ffmpeg(*arguments: str) -> None:
    subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-y", "-threads", "1", *arguments], check=True)
