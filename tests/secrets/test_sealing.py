"""Secrets at rest."""

import base64
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pitboss.model.errors import InvalidInput, KeyMissing
from pitboss.model.sealed import key_of
from pitboss.secrets import KeyRing, new_key

PLACE = ("proxies", "p1", "password")


def test_what_was_sealed_opens_again_and_shows_nothing() -> None:
    ring = KeyRing([new_key()])
    sealed = ring.seal("hunter22 ü\0", PLACE)
    assert "hunter" not in sealed
    assert ring.open(sealed, PLACE) == "hunter22 ü\0"
    assert ring.seal("hunter22 ü\0", PLACE) != sealed, "a nonce is never used twice"


@pytest.mark.parametrize(
    "place", [("proxies", "p2", "password"), ("keys", "p1", "password"), ("proxies", "p1", "cookie")]
)
def test_a_sealed_text_belongs_to_its_place(place: tuple[str, str, str]) -> None:
    ring = KeyRing([new_key()])
    with pytest.raises(InvalidInput, match="another member or field"):
        ring.open(ring.seal("hunter22", PLACE), place)


def test_a_changed_text_does_not_open() -> None:
    ring = KeyRing([new_key()])
    sealed = ring.seal("hunter22", PLACE)
    body = sealed[:-4] + ("AAAA" if not sealed.endswith("AAAA") else "BBBB")
    for broken in (body, "hunter22", "s1.00000000.!!!", sealed.replace("s1.", "s9.")):
        with pytest.raises(InvalidInput, match="cannot be opened") as caught:
            ring.open(broken, PLACE)
        assert "hunter22" not in str(caught.value)


def test_the_first_key_seals_and_all_open() -> None:
    old, new = new_key(), new_key()
    sealed = KeyRing([old]).seal("hunter22", PLACE)
    both = KeyRing([new, old])
    assert both.open(sealed, PLACE) == "hunter22"
    fresh = both.reseal(sealed, PLACE)
    assert both.reseal(fresh, PLACE) == fresh
    assert KeyRing([new]).open(fresh, PLACE) == "hunter22"
    with pytest.raises(InvalidInput, match="which is not in PITBOSS_SECRET_KEYS"):
        KeyRing([new]).open(sealed, PLACE)


@pytest.mark.parametrize("size", [16, 24, 32])
def test_keys_are_hex_or_base64(size: int) -> None:
    key = os.urandom(size)
    sealed = KeyRing([key.hex()]).seal("hunter22", PLACE)
    for text in (base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode().rstrip("=")):
        assert KeyRing([text]).open(sealed, PLACE) == "hunter22"


@pytest.mark.parametrize("text", ["short", "zz" * 32, "ab" * 31])
def test_a_text_that_is_no_key_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidInput, match="16, 24 or 32 bytes") as caught:
        KeyRing([text]).seal("hunter22", PLACE)
    assert text not in str(caught.value)


def test_a_file_is_made_at_the_first_seal_and_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "keys"
    ring = KeyRing(file=file)
    with pytest.raises(InvalidInput, match="is not in"):
        ring.open("s1.00000000.AAAA", PLACE)
    assert not file.exists(), "opening makes no keys: those that are missing would be covered up"
    sealed = ring.seal("hunter22", PLACE)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert KeyRing(file=file).open(sealed, PLACE) == "hunter22"
    assert [one.name for one in file.parent.iterdir()] == ["keys"]


def test_many_that_make_the_file_at_once_have_the_same_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    with ThreadPoolExecutor(8) as threads:
        sealed = list(threads.map(lambda _: KeyRing(file=file).seal("hunter22", PLACE), range(8)))
    ring = KeyRing(file=file)
    assert {ring.open(one, PLACE) for one in sealed} == {"hunter22"}


def test_nothing_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, pitboss; from pitboss import App, Lease, Resources; App().resources('proxies', per_hour=5);"
        "print([name for name in ('cryptography', 'pydantic', 'psycopg') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_a_key_that_is_put_back_into_the_file_opens_at_once(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    sealed = KeyRing(file=file).seal("hunter22", PLACE)
    lost = file.read_text()
    file.write_text(new_key())
    ring = KeyRing(file=file)
    with pytest.raises(KeyMissing) as caught:
        ring.open(sealed, PLACE)
    name = key_of(sealed)
    assert name is not None
    assert name in caught.value.why
    assert name not in ring.names()
    file.write_text(f"{new_key()}\n{lost}")
    assert name in ring.names()
    assert ring.open(sealed, PLACE) == "hunter22"


def test_asking_for_the_names_of_keys_makes_none(tmp_path: Path) -> None:
    ring = KeyRing(file=tmp_path / "keys")
    assert ring.names() == frozenset()
    assert not (tmp_path / "keys").exists()
