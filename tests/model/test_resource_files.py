"""Files with members."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitboss.model.errors import InvalidInput
from pitboss.model.resource_files import Row, checked_member_name, hides_password, read_address, read_rows


def _one(text: str) -> Row:
    (row,) = read_rows(text)
    return row


def test_lines_of_host_port_user_password() -> None:
    rows = read_rows("# mine\n\n10.0.0.1:8080:anna:pa:ss#word\nproxy.example:3128  # spare\n")
    assert [row.name for row in rows] == ["10.0.0.1:8080", "proxy.example:3128"]
    assert rows[0].fields == {"host": "10.0.0.1", "port": 8080, "user": "anna"}
    assert rows[0].secrets == {"password": "pa:ss#word"}
    assert rows[1].secrets == {}


@pytest.mark.parametrize(
    ("line", "fields", "secrets"),
    [
        (
            "http://anna:s3cret@10.0.0.1:8080",
            {"scheme": "http", "host": "10.0.0.1", "port": 8080, "user": "anna"},
            {"password": "s3cret"},
        ),
        (
            "socks5://anna:a%40b@h.example:1080",
            {"scheme": "socks5", "host": "h.example", "port": 1080, "user": "anna"},
            {"password": "a@b"},
        ),
        ("http://[2001:db8::1]:80", {"scheme": "http", "host": "2001:db8::1", "port": 80}, {}),
        ("https://h.example", {"scheme": "https", "host": "h.example"}, {}),
        ("http://APIKEY@h.example:80", {"scheme": "http", "host": "h.example", "port": 80}, {"user": "APIKEY"}),
        (
            "http://anna:p@ss@h.example:80",
            {"scheme": "http", "host": "h.example", "port": 80, "user": "anna"},
            {"password": "p@ss"},
        ),
        (
            "anna:s3cret@h.example:80",
            {"scheme": "http", "host": "h.example", "port": 80, "user": "anna"},
            {"password": "s3cret"},
        ),
    ],
)
def test_urls(line: str, fields: dict[str, object], secrets: dict[str, str]) -> None:
    row = _one(line)
    assert row.fields == fields
    assert row.secrets == secrets


@pytest.mark.parametrize("password", ["p@ss", "p@ss:w@h.example:80", "a/b", "a#b", "50%40", "://x", "ключ@é", "@"])
def test_a_line_is_read_from_the_left_whatever_its_password(password: str) -> None:
    row = _one(f"10.0.0.1:8080:anna:{password}")
    assert (row.name, row.secrets) == ("10.0.0.1:8080", {"password": password})
    assert row.fields == {"host": "10.0.0.1", "port": 8080, "user": "anna"}
    in_brackets = _one(f"[2001:db8::1]:80:anna:{password}")
    assert (in_brackets.fields["host"], in_brackets.secrets) == ("2001:db8::1", {"password": password})


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("anna:hunter@2@h.example:80", "%40"),
        ("anna:hun:ter2@h.example:80", "%3A"),
        ("anna:8080:hunter2@h.example:80", "%3A"),
        ("10.0.0.1:8080@hunter2:1234", "http://user:password@host:port"),
        ("http://anna:hunter@2/2@h.example:80", "%2F"),
        ("http://anna:22/hunter@h.example:80", "%2F"),
        ("2001:470:1f0b:10::2:8080", "[2001:db8::1]:8080"),
        ("10.0.0.1:8080:anna:hunter #2", "a line of its own"),
        ("http://hunter #2@10.0.0.1:8080", "a line of its own"),
    ],
)
def test_a_line_with_two_meanings_is_refused_with_how_to_write_it(line: str, fix: str) -> None:
    with pytest.raises(InvalidInput, match="line 1 of") as caught:
        read_rows(line)
    assert fix in caught.value.fix
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("name", ["10.0.0.1:80:anna:hunter2", "http://anna:hunter2@h", "anna:hunter2@h:1"])
def test_an_address_with_a_password_is_no_name(name: str) -> None:
    assert hides_password(name)
    with pytest.raises(InvalidInput) as caught:
        checked_member_name(name)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["p1", "10.0.0.1:80", "gate.example:80:anna-1", "2001:470:1f0b:10::2:80", "ann"])
def test_other_names_are_names(name: str) -> None:
    assert checked_member_name(name) == name


def test_csv_with_a_header() -> None:
    text = (
        "\ufeffName,Host,Port,Username,Password,Labels,Weight,Country,secret.cookie\n"
        'p1,10.0.0.1,8080,anna,"x,y",eu fast,50,de,C1\n'
        "p2,10.0.0.2,8081,,,,,fr,\n"
    )
    first, second = read_rows(text)
    assert (first.name, first.labels, first.weight) == ("p1", ("eu", "fast"), 50)
    assert first.fields == {"host": "10.0.0.1", "port": 8080, "user": "anna", "country": "de"}
    assert first.secrets == {"password": "x,y", "cookie": "C1"}
    assert (second.name, second.fields, second.secrets) == (
        "p2",
        {"host": "10.0.0.2", "port": 8081, "country": "fr"},
        {},
    )


def test_csv_with_urls() -> None:
    row = _one("url,label\nhttp://anna:pw12@h.example:80,group-3\n")
    assert (row.name, row.labels, row.secrets) == ("h.example:80", ("group-3",), {"password": "pw12"})


def test_several_accounts_at_one_address_are_several_members() -> None:
    rows = read_rows("gate.example:80:anna-1:x1x1\ngate.example:80:anna-2:x2x2\n")
    assert [row.name for row in rows] == ["gate.example:80:anna-1", "gate.example:80:anna-2"]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("10.0.0.1:8080:u:TOPSECRET\n10.0.0.1:99999:u:TOPSECRET\n", 2, "port"),
        ("10.0.0.1:80\nTOP SECRET:80\n", 2, "host"),
        ("http://u:TOPSECRET@[zz:80\n", 1, "address"),
        ("name,host,password\np1,10.0.0.1,TOPSECRET,extra\n", 2, "columns"),
        ("name,host,host\np1,10.0.0.1,TOPSECRET\n", 1, "same name"),
        ("name,host,weight\np1,10.0.0.1,TOPSECRET\n", 2, "weight"),
        ("host,password\n,TOPSECRET\n", 2, "neither a name nor a host"),
        ("10.0.0.1:80:u:TOPSECRET\n10.0.0.1:80:u:TOPSECRET\n", 2, "same member as line 1"),
    ],
)
def test_a_refusal_names_the_line_and_no_secret(text: str, line: int, why: str) -> None:
    with pytest.raises(InvalidInput, match=rf"line {line} of p.txt") as caught:
        read_rows(text, "p.txt")
    assert why in caught.value.why
    assert "TOPSECRET" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no members"):
        read_rows("# nothing\n\n")


def test_a_row_does_not_show_its_secrets() -> None:
    assert "TOPSECRET" not in repr(_one("10.0.0.1:80:u:TOPSECRET"))


@given(password=st.text(min_size=3, max_size=12).map(lambda text: f"q7{text}Zx".strip()))
def test_no_part_of_a_password_is_shown(password: str) -> None:
    encoded = quote(password, safe="")
    row = read_address(f"10.0.0.7:8080:ann:{password}", "--url")
    coded = read_address(f"http://ann:{encoded}@10.0.0.7:8080", "--url")
    assert (row.name, coded.name) == ("10.0.0.7:8080", "10.0.0.7:8080")
    assert (row.secrets, coded.secrets) == ({"password": password}, {"password": password})
    assert (row.fields, coded.fields["host"]) == ({"host": "10.0.0.7", "port": 8080, "user": "ann"}, "10.0.0.7")
    for line in ("http://ann:{}@h.example:80", "ann:{}@h.example:80", "h.example:{}:ann"):
        # Words such as "user" are in the message whatever the password is.
        own = _pieces(_shown(line.format("q7ÄÖÜßZx")))
        assert not (_pieces(password) & _pieces(_shown(line.format(password)))) - own


def _shown(line: str) -> str:
    try:
        return str(read_address(line, "--url")[:2])
    except InvalidInput as error:
        return str(error)


def _pieces(text: str) -> set[str]:
    return {text[at : at + 4] for at in range(len(text) - 3)}
