"""Cuts a video into segments. The document's `segmentVideoAtPath`."""

from pathlib import Path

from media_pipeline.ffmpeg import READ, Report, ffmpeg, probe
from media_pipeline.settings import Settings

SECONDS = 30
# The encoder takes only even sizes.
EVEN = "scale=trunc(iw/2)*2:trunc(ih/2)*2"


async def segment_video_at_path(path: Path, folder: Path, settings: Settings, report: Report | None = None) -> float:
    """Write segments of 30 s into the folder, none for a video that is not longer; gives the video's seconds.

    It encodes anew, with a key frame where each segment begins: a mere copy could cut only where the video happens to
    have key frames.
    """
    video = await probe(path)
    if video.seconds <= SECONDS:
        return video.seconds
    name = path.stem.replace("%", "%%")
    encoded = ("-c:v", "libx264", "-preset", settings.ffmpeg_preset, "-threads", settings.ffmpeg_threads)
    frames = ("-vf", EVEN, "-pix_fmt", "yuv420p", "-force_key_frames", f"expr:gte(t,n_forced*{SECONDS})")
    cut = ("-f", "segment", "-segment_time", str(SECONDS), "-reset_timestamps", "1")
    await ffmpeg(
        path.name,
        *(*READ, "-i", str(path), "-map", "0:v:0", "-map", "0:a?"),
        *(*encoded, *frames, "-c:a", "aac", *cut, str(folder / f"{name}_%03d.mp4")),
        report=None if report is None else lambda done: report(done / video.seconds),
    )
    return video.seconds
