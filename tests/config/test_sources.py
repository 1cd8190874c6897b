"""The tables [sources.NAME]: what they say, and what is wrong with them."""

from pathlib import Path

import pytest

from pitboss import config
from pitboss.model.duration import span
from pitboss.model.errors import InvalidInput
from pitboss.model.source import SourceSpec

URL = "amqp://ann:hunter2@host:5672/v"
FULL = f"""
[sources.download]
url = "{URL}"
queue = "download_queue"
handler = "download"
dead_letter_queue = "bad"
prefetch = 20
dedupe = "2d"
competing = true
create = "quorum"
"""
LEAST = f'[sources.one]\nurl = "{URL}"\nqueue = "in"\nhandler = "work"\n'


def specs(folder: Path, text: str) -> tuple[SourceSpec, ...]:
    (folder / "pitboss.toml").write_text(text)
    return config.source_specs(config.load().sources)


def test_all_keys_are_read(folder: Path) -> None:
    (spec,) = specs(folder, FULL)
    assert spec == SourceSpec(
        name="download",
        url=URL,
        queue="download_queue",
        handler="download",
        dead_letter_queue="bad",
        prefetch=20,
        dedupe=span("2d"),
        competing=True,
        create="quorum",
    )


def test_the_least_is_url_queue_and_handler(folder: Path) -> None:
    (spec,) = specs(folder, LEAST)
    assert (spec.dead_letter_queue, spec.prefetch, spec.dedupe) == ("in_dlq", 500, span("1h"))
    assert (spec.competing, spec.create) == (False, None)


def test_the_environment_overrides_and_adds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITBOSS_SOURCES__ONE__URL", "amqps://other/")
    monkeypatch.setenv("PITBOSS_SOURCES__TWO_PARTS__URL", URL)
    monkeypatch.setenv("PITBOSS_SOURCES__TWO_PARTS__QUEUE", "q2")
    monkeypatch.setenv("PITBOSS_SOURCES__TWO_PARTS__HANDLER", "work")
    found = {one.name: one for one in specs(folder, LEAST)}
    assert found["one"].url == "amqps://other/"
    assert found["two_parts"].queue == "q2"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[sources]\none = 5\n", "sources"),
        ('[sources.One]\nqueue = "q"\n', "'One' cannot name a source.*small letters, digits and _"),
        ('[sources."a-b"]\nqueue = "q"\n', "small letters, digits and _"),
        (f"[sources.{'x' * 65}]\n", "small letters, digits and _"),
        ('[sources.one]\nqeue = "q"\n', r"sources\.one\.qeue"),
        ('[sources.one]\nurl = "http://host"\n', r"sources\.one\.url.*begins with amqp"),
        ('[sources.one]\nurl = ""\n', r"sources\.one\.url.*begins with amqp"),
        ('[sources.one]\nurl = "amqp://a b"\n', r"sources\.one\.url.*begins with amqp"),
        ("[sources.one]\nurl = 5\n", r"sources\.one\.url.*begins with amqp"),
        ('[sources.one]\nurl = "amqp://ann:a#b@host"\n', r"sources\.one\.url.*%23 for #"),
        ('[sources.one]\nurl = "amqp://ann:1/b@host"\n', r"sources\.one\.url.*%2F for /"),
        ('[sources.one]\nurl = "amqp://host:port/"\n', r"sources\.one\.url.*port is not a number"),
        ('[sources.one]\nqueue = ""\n', "text of 1 to 255 bytes"),
        (f'[sources.one]\nqueue = "{"ü" * 128}"\n', "text of 1 to 255 bytes"),
        ('[sources.one]\ndead_letter_queue = ""\n', "text of 1 to 255 bytes"),
        ("[sources.one]\nprefetch = 0\n", r"sources\.one\.prefetch"),
        ("[sources.one]\nprefetch = 10001\n", r"sources\.one\.prefetch"),
        ("[sources.one]\nprefetch = 1.5\n", r"sources\.one\.prefetch"),
        ('[sources.one]\ndedupe = "long"\n', r"sources\.one\.dedupe"),
        ('[sources.one]\ndedupe = "-1h"\n', r"sources\.one\.dedupe"),
        ('[sources.one]\ncreate = "stream"\n', r"sources\.one\.create"),
        ('[sources.one]\ncompeting = "perhaps"\n', r"sources\.one\.competing"),
    ],
)
def test_mistakes_are_refused_with_their_place(folder: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"(?s){told}") as refused:
        specs(folder, text)
    assert refused.value.fix


@pytest.mark.parametrize("key", ["url", "queue", "handler"])
def test_a_key_that_must_be_there_is_missed(folder: Path, key: str) -> None:
    text = "\n".join(line for line in LEAST.splitlines() if not line.startswith(key))
    with pytest.raises(InvalidInput, match=f"sources.one has no {key}") as refused:
        specs(folder, text)
    assert f"PITBOSS_SOURCES__ONE__{key.upper()}" in refused.value.fix


def test_a_queue_is_not_its_own_dead_letter_queue(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="as its dead-letter queue") as refused:
        specs(folder, f'{LEAST}dead_letter_queue = "in"\n')
    assert "in_dlq" in refused.value.fix


def test_two_sources_do_not_take_one_queue(folder: Path) -> None:
    again = LEAST.replace("sources.one", "sources.two")
    with pytest.raises(InvalidInput, match='"one" and "two" take the same queue'):
        specs(folder, LEAST + again)
    assert len(specs(folder, LEAST + again.replace("/v", "/other"))) == 2
    assert len(specs(folder, LEAST + again.replace('"in"', '"other"'))) == 2


def test_no_message_of_an_error_shows_the_password(folder: Path) -> None:
    wrong = LEAST.replace(URL, "amqp//ann:hunter2@host")
    with pytest.raises(InvalidInput) as refused:
        specs(folder, wrong)
    told = f"{refused.value.what} {refused.value.why} {refused.value.fix}"
    assert "hunter2" not in told
