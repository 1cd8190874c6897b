"""Secrets at rest: sealed with AES-GCM before they reach a store, opened only where they are used.

A sealed text names its key and is bound to its path (pool, member, field): under another path it does not open. The
first key of a ring seals and all keys open. So a new key can be put first, and the old one removed after everything
was sealed again.
"""

import binascii
import hashlib
import os
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pitboss.model.errors import InvalidInput, KeyMissing
from pitboss.model.sealed import VERSION

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SIZES = (16, 24, 32)
_NEW = 32
_NONCE = 12
# Pool, member and field.
SecretPath = tuple[str, str, str]


class KeyRing:
    """The keys of one store: given as text (the first seals, all open), or kept in a file that is made at first use."""

    def __init__(self, texts: Sequence[str] = (), file: Path | None = None) -> None:
        self._texts, self._file = tuple(texts), file
        self._keys: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"<KeyRing from {'the environment' if self._texts else self._file}>"

    @property
    def where(self) -> str:
        """Where the keys come from."""
        return "PITBOSS_SECRET_KEYS" if self._texts else str(self._file)

    def names(self) -> frozenset[str]:
        """The names of the keys as they are now: a file is read again. Makes no key."""
        return frozenset(_name(key) for key in self._read(make=False))

    @property
    def keyless(self) -> bool:
        """Whether the next `seal` would make a key."""
        return not self._loaded(make=False)

    def make(self) -> None:
        """Begin with a new key, if there is none."""
        self._loaded(make=True)

    def seal(self, value: str, path: SecretPath) -> str:
        """The value encrypted, ready for the store."""
        keys = self._loaded(make=True)
        name = next(iter(keys))
        nonce = os.urandom(_NONCE)
        closed = _cipher(keys[name]).encrypt(nonce, value.encode("utf-8", "surrogatepass"), _bound(path))
        return f"{VERSION}.{name}.{urlsafe_b64encode(nonce + closed).decode().rstrip('=')}"

    def open(self, sealed: str, path: SecretPath) -> str:
        """The value itself. Refuses a text that was sealed with an unknown key or for another path, or was changed."""
        from cryptography.exceptions import InvalidTag

        name, data = _parts(sealed, path)
        if name not in self._loaded(make=False):
            # The key may have been put back into the file since it was read.
            self._keys = None
        key = self._loaded(make=False).get(name)
        if key is None:
            raise self._unknown_key(name, path)
        try:
            value = _cipher(key).decrypt(data[:_NONCE], data[_NONCE:], _bound(path))
        except InvalidTag as error:
            raise _unreadable(path, "it was changed, or sealed for another member or field") from error
        return value.decode("utf-8", "surrogatepass")

    def reseal(self, sealed: str, path: SecretPath) -> str:
        """The same value under the newest key."""
        name, _ = _parts(sealed, path)
        newest = next(iter(self._loaded(make=False)), None)
        if newest is None:
            raise self._unknown_key(name, path)
        return sealed if name == newest else self.seal(self.open(sealed, path), path)

    def _loaded(self, *, make: bool) -> dict[str, bytes]:
        if self._keys is None:
            keys = self._read(make=make)
            if not keys:
                return {}
            self._keys = {_name(key): key for key in keys}
        return self._keys

    def _read(self, *, make: bool) -> list[bytes]:
        return [_key(text, "PITBOSS_SECRET_KEYS") for text in self._texts] or self._from_file(make)

    def _from_file(self, make: bool) -> list[bytes]:
        if self._file is None:
            return []
        if make and not self._file.exists():
            _make_file(self._file)
        try:
            lines = self._file.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(
                f"the keys in {self._file} cannot be read",
                why=getattr(error, "strerror", None) or "it is not a file with keys",
                fix="check the rights of the file, or set PITBOSS_SECRET_KEYS",
            ) from error
        return [_key(line, str(self._file)) for line in lines if line.strip() and not line.startswith("#")]

    def _unknown_key(self, name: str, path: SecretPath) -> KeyMissing:
        return KeyMissing(
            f"the secret {'/'.join(path)} cannot be opened",
            why=f"it was sealed with the key {name}, which is not in {self.where}",
            fix="give this process the keys of the one that added it (PITBOSS_SECRET_KEYS, or secrets_file), "
            "or add the member again",
        )


def new_key() -> str:
    """A key as `PITBOSS_SECRET_KEYS` and the key file hold it."""
    return os.urandom(_NEW).hex()


def _make_file(path: Path) -> None:
    """Create the file as a whole or not at all. If several processes try at once, one of them wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    end = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(end, "w", encoding="ascii") as file:
            file.write(f"# Keys of Pitboss's secrets. Without them they cannot be opened: keep a copy.\n{new_key()}\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _key(text: str, where: str) -> bytes:
    text = text.strip()
    for read in (bytes.fromhex, _from_base64):
        try:
            key = read(text)
        except (ValueError, binascii.Error):
            continue
        if len(key) in _SIZES:
            return key
    raise InvalidInput(
        f"a key in {where} cannot be used",
        why="a key is 16, 24 or 32 bytes, written in hex or base64",
        fix="make one: python -c 'import secrets; print(secrets.token_hex(32))'",
    )


def _from_base64(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4)
    return urlsafe_b64decode(padded) if "-" in text or "_" in text else b64decode(padded, validate=True)


def _name(key: bytes) -> str:
    """The name of a key. It reveals nothing of the key."""
    return hashlib.sha256(b"pitboss key " + key).hexdigest()[:8]


def _cipher(key: bytes) -> "AESGCM":
    # Loaded at first use: most processes never open a secret.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _bound(path: SecretPath) -> bytes:
    return "\0".join(path).encode()


def _parts(sealed: str, path: SecretPath) -> tuple[str, bytes]:
    match sealed.split("."):
        case [version, name, body] if version == VERSION:
            with suppress(ValueError, binascii.Error):
                return name, urlsafe_b64decode(body + "=" * (-len(body) % 4))
    raise _unreadable(path, "it is not a sealed text of this version")


def _unreadable(path: SecretPath, why: str) -> InvalidInput:
    return InvalidInput(
        f"the secret {'/'.join(path)} cannot be opened", why=why, fix="add the member again with its secrets"
    )
