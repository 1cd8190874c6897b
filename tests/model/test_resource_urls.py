"""No password stays in an open field."""

from typing import Any

import pytest

from pitboss.model.errors import InvalidInput
from pitboss.model.resource_urls import parted


@pytest.mark.parametrize(
    ("url", "kept", "secrets"),
    [
        ("http://anna:hunter22@h:1", "http://h:1", {"user": "anna", "password": "hunter22"}),
        ("socks5://anna:hunter%4022@[::1]:1", "socks5://[::1]:1", {"user": "anna", "password": "hunter@22"}),
        ("http://anna:hunter/22@h:1", "http://h:1", {"user": "anna", "password": "hunter/22"}),
        ("http://anna:hunter@22@h:1", "http://h:1", {"user": "anna", "password": "hunter@22"}),
        ("https://anna:hunter22@h/way?x=1", "https://h/way?x=1", {"user": "anna", "password": "hunter22"}),
        ("http://key-of-anna@h:1", "http://h:1", {"user": "key-of-anna"}),
        ("anna:hunter22@h:1", "http://h:1", {"user": "anna", "password": "hunter22"}),
        ("http://h:80/@anna", "http://h:80/@anna", {}),
        ("http://[::1]:80/@anna", "http://[::1]:80/@anna", {}),
        ("http://h:1", "http://h:1", {}),
    ],
)
def test_a_url_is_taken_apart(url: str, kept: str, secrets: dict[str, str]) -> None:
    found = parted({"url": url, "zone": 3}, {"cookie": "c"}, "proxies/p1")
    assert found.fields == {"url": kept, "zone": 3}
    assert found.secrets == {"cookie": "c", **secrets}
    assert "hunter" not in repr(found)


@pytest.mark.parametrize(
    "url",
    ["http://anna:hunter@22/x@h:1", "http://anna:hunter22@", "http://anna:hunter22@h:port", "http://a:hunter22@:1"],
)
def test_what_is_unclear_is_refused_without_a_word_of_it(url: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be split") as caught:
        parted({"url": url}, {}, "proxies/p1")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "http://anna:hunter22@h:1",
        "through http://anna:hunter/22@h:1 only",
        ["http://:hunter22@h"],
        {"deep": ("http://anna:hunter22@h:1",)},
    ],
)
def test_a_password_in_another_field_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match='field "proxy" of proxies/p1 is a URL with a password') as caught:
        parted({"proxy": value}, {}, "proxies/p1")
    assert "hunter" not in str(caught.value)
    assert caught.value.why
    assert caught.value.fix


@pytest.mark.parametrize("value", ["ssh://git@h/x", "http://h:80/@anna", "http://[::1]:80/@anna", "a:b@c", 7, None])
def test_fields_without_a_password_stay_as_they_are(value: Any) -> None:
    assert parted({"other": value}, {}, "proxies/p1").fields == {"other": value}


def test_credentials_that_are_told_twice_must_agree() -> None:
    fields = {"url": "http://anna:hunter22@h:1", "user": "anna"}
    found = parted(fields, {"password": "hunter22"}, "proxies/p1")
    assert found.fields == {"url": "http://h:1", "user": "anna"}
    assert found.secrets == {"password": "hunter22"}
    with pytest.raises(InvalidInput, match="the password of proxies/p1 is given twice"):
        parted(fields, {"password": "hunter33"}, "proxies/p1")
    with pytest.raises(InvalidInput, match="the user of proxies/p1 is given twice"):
        parted({**fields, "user": "bob"}, {}, "proxies/p1")
