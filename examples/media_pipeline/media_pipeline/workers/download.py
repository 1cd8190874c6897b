"""The download worker: one link, many files. The document's `src/workers/download.js`."""

from collections.abc import AsyncIterator

from media_pipeline.app import DOWNLOAD, app, sites
from media_pipeline.files import short
from media_pipeline.messages import DownloadMessage, file_message
from media_pipeline.notices import downloaded
from media_pipeline.processors.download_scraper import Refused, Scraper, TooManyRequests
from media_pipeline.settings import Settings
from media_pipeline.workers.cutter import cutter
from media_pipeline.workers.notify import tell
from pitboss import Fail, Snooze, TimedOutWaiting, backoff, ctx


@app.worker_state(max_age="1h")
async def scrapers() -> AsyncIterator[Scraper]:
    """Made anew each hour, so that a changed robots.txt is read."""
    yield Scraper(sites)


@app.task(queue=DOWNLOAD, max_attempts=6, backoff=backoff("2s", factor=2, cap="1m"), timeout="30m")
async def download(message: DownloadMessage, scraper: Scraper = scrapers()) -> dict[str, list[str]]:
    """Fetch all videos of a page. Each one goes on to the cutter, in the act that completes this task."""
    settings = Settings.load()
    folder = settings.folder / "downloads" / short(ctx.id)
    try:
        paths = await scraper.fetch_videos(message.link, folder, settings.most_bytes)
    except Refused as error:
        raise Fail(str(error), category="refused") from error
    except TooManyRequests as error:
        raise Snooze(error.seconds, str(error)) from error
    except TimedOutWaiting as error:
        raise Snooze("10s", "the site is busy with other tasks, or rests") from error
    results = [str(path.relative_to(settings.folder)) for path in paths]
    for result in results:
        ctx.enqueue(cutter, message=file_message(result, message))
    tell(message, downloaded(message, results))
    return {"results": results}
