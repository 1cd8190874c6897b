"""Makes a short clip and a strip of thumbnails. The document's `createPreviewVideoAtPath`."""

from pathlib import Path

from media_pipeline.ffmpeg import READ, ffmpeg, probe
from media_pipeline.settings import Settings

CLIP, STRIP = "preview.mp4", "strip.png"
PARTS, PART_SECONDS = 4, 1.0
THUMBNAILS = 6
# Every video gets the same size, so that strips can stand below each other.
_FRAME = "scale=160:90:force_original_aspect_ratio=decrease,pad=160:90:(ow-iw)/2:(oh-ih)/2"


async def create_preview_video_at_path(path: Path, folder: Path, settings: Settings) -> None:
    """Write both into the folder: seconds from four places of the video without sound, and six pictures in a row."""
    video = await probe(path)
    parts = [place for start in _starts(video.seconds) for place in (*_part(start), *READ, "-i", str(path))]
    joined = "".join(f"[{number}:v:0]" for number in range(len(_starts(video.seconds))))
    graph = f"{joined}concat=n={len(_starts(video.seconds))},{_FRAME},fps=10[clip]"
    encoded = ("-c:v", "libx264", "-preset", settings.ffmpeg_preset, "-threads", settings.ffmpeg_threads)
    shape = ("-pix_fmt", "yuv420p", "-movflags", "+faststart")
    await ffmpeg(path.name, *parts, "-filter_complex", graph, "-map", "[clip]", *encoded, *shape, str(folder / CLIP))
    strip = f"fps={THUMBNAILS}/{video.seconds},{_FRAME},tile={THUMBNAILS}x1:padding=4"
    await ffmpeg(path.name, *READ, "-i", str(path), "-vf", strip, "-frames:v", "1", str(folder / STRIP))


def _starts(seconds: float) -> list[float]:
    """Where the parts begin: in the middle of each quarter. A video that is not longer than the clip is one part."""
    if seconds <= PARTS * PART_SECONDS:
        return [0.0]
    quarter = seconds / PARTS
    return [quarter * (number + 0.5) - PART_SECONDS / 2 for number in range(PARTS)]


def _part(start: float) -> tuple[str, ...]:
    return ("-ss", f"{start:.3f}", "-t", f"{PART_SECONDS if start else PARTS * PART_SECONDS:.3f}")
