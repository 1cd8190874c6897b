"""The videos of the stand-in: a few thousand, the same for the same seed."""

import random
import string
from dataclasses import dataclass
from typing import Any

TOPICS = (
    "pottery", "hiking", "cooking", "sailing", "chess", "gardening", "astronomy", "juggling", "origami", "beekeeping",
    "weaving", "climbing", "baking", "birding", "carpentry", "fencing", "drumming", "knitting", "rowing", "welding",
)  # fmt: skip
STYLES = ("quick", "complete", "honest", "beginner", "advanced", "silent", "weekend", "classic")
FORMS = ("guide", "lesson", "mistakes", "story", "review", "challenge")
_ID_LETTERS = string.ascii_letters + string.digits + "-_"
_ID_LENGTH = 11
_EVERY_PRIVATE = 37
_CHANNELS = 60


@dataclass(frozen=True)
class Video:
    """One video. A private one is in no search, and `videos` leaves it out as if it did not exist."""

    id: str
    title: str
    channel: int
    published: str
    seconds: int
    views: int
    private: bool

    @property
    def snippet(self) -> dict[str, Any]:
        return {
            "publishedAt": self.published,
            "channelId": f"UC{self.channel:022}",
            "title": self.title,
            "description": f"{self.title}, by channel {self.channel}.",
            "channelTitle": f"Channel {self.channel}",
        }

    def resource(self, parts: set[str]) -> dict[str, Any]:
        """The video as `videos` shows it, with the parts that were asked for. Counts are texts there."""
        every = {
            "snippet": self.snippet,
            "contentDetails": {"duration": f"PT{self.seconds // 60}M{self.seconds % 60}S", "definition": "hd"},
            "statistics": {"viewCount": str(self.views), "likeCount": str(self.views // 25), "commentCount": "7"},
        }
        return {"kind": "youtube#video", "id": self.id, **{name: every[name] for name in every if name in parts}}

    def found(self) -> dict[str, Any]:
        """The video as `search` shows it."""
        return {
            "kind": "youtube#searchResult",
            "id": {"kind": "youtube#video", "videoId": self.id},
            "snippet": self.snippet,
        }


class Catalogue:
    """All videos, by id and by the words of their titles."""

    def __init__(self, size: int = 3000, seed: int = 7) -> None:
        chance = random.Random(seed)
        self.videos = {video.id: video for video in (_video(chance, number) for number in range(size))}

    def search(self, query: str) -> list[Video]:
        """Videos with all words of the query in their title, in a fixed order."""
        words = query.lower().split()
        return [one for one in self.videos.values() if not one.private and set(words) <= set(one.title.lower().split())]

    def get(self, video_id: str) -> Video | None:
        video = self.videos.get(video_id)
        return None if video is None or video.private else video


def _video(chance: random.Random, number: int) -> Video:
    words = (chance.choice(STYLES), chance.choice(TOPICS), chance.choice(FORMS))
    return Video(
        id="".join(chance.choices(_ID_LETTERS, k=_ID_LENGTH)),
        title=f"{words[0].title()} {words[1]} {words[2]} {number}",
        channel=chance.randrange(_CHANNELS),
        published=f"20{chance.randrange(10, 26)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}T12:00:00Z",
        seconds=chance.randrange(15, 3600),
        views=chance.randrange(10, 5_000_000),
        private=number % _EVERY_PRIVATE == 0,
    )
