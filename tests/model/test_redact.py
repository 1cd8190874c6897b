"""Opened secrets are masked."""

import json
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from pitboss.model.redact import Redactor


@pytest.mark.parametrize("secret", ["hunter22", 'qu"ote\\d', "sp ace/ü@:", "new\nline"])
def test_a_secret_is_hidden_in_every_form_in_which_it_travels(secret: str) -> None:
    redactor = Redactor()
    redactor.add(secret)
    redactor.add_pair("anna", secret)
    forms = [
        secret,
        quote(secret, safe=""),
        json.dumps(secret, ensure_ascii=False),
        repr(secret),
        f"http://anna:{quote(secret, safe='')}@h",
        b64encode(f"anna:{secret}".encode()).decode(),
    ]
    for form in forms:
        hidden = redactor.hidden(f"before {form} after")
        assert "***" in hidden
        assert secret not in hidden
        assert quote(secret, safe="") not in hidden
    assert redactor.hidden_bytes(json.dumps({"event": secret}, ensure_ascii=False).encode()) == b'{"event": "***"}'


def test_short_values_and_other_text_stay() -> None:
    redactor = Redactor()
    redactor.add("abc")
    redactor.add("abcdef")
    assert redactor.hidden("abc xyz abcdef") == "abc xyz ***"


def test_one_secret_within_another_leaves_nothing() -> None:
    redactor = Redactor()
    redactor.add("hunter")
    redactor.add("hunter22-long")
    assert redactor.hidden("hunter22-long hunter") == "*** ***"


def test_the_newest_are_kept() -> None:
    redactor = Redactor()
    for number in range(2100):
        redactor.add(f"secret-{number:05}")
    assert redactor.hidden("secret-02099") == "***"
    assert "secret" not in repr(redactor)


def test_threads_that_add_at_once_lose_nothing() -> None:
    redactor = Redactor()

    def add(number: int) -> str:
        redactor.add(f"secret-{number:05}")
        return redactor.hidden(f"secret-{number:05}")

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(add, range(1500))) == {"***"}
    assert all(redactor.hidden(f"secret-{number:05}") == "***" for number in range(1500))
