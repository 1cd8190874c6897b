"""The messages of the three queues, with the document's field names.

Producers may send more fields, such as `retryCount`: they are kept, and ignored, because the store counts the attempts.
"""

from pydantic import BaseModel, ConfigDict, Field


class Message(BaseModel):
    """`from` is the person who asked, and `noreply` true if that person wants to hear nothing."""

    model_config = ConfigDict(extra="allow")

    from_: str = Field(alias="from")
    noreply: bool = False


class DownloadMessage(Message):
    """The videos of this page are wanted."""

    link: str = Field(pattern=r"\Ahttps?://[^/\s]+")


class FileMessage(Message):
    """A file to cut, or to make a preview of. A relative path is within the media folder."""

    file_path: str = Field(alias="filePath", min_length=1)


def file_message(path: str, asked: Message) -> dict[str, object]:
    """The message about one file of what a person asked for."""
    return {"filePath": path, "from": asked.from_, "noreply": asked.noreply}
