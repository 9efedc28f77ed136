"""API keys: files of keys, read again when they change, and who may ask for what."""

import hmac
import logging
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from gearshift.errors import InvalidInput, NoAccess, require

AUTHORIZATION, API_KEY = b"authorization", b"x-api-key"
BEARER = b"bearer "

log = logging.getLogger(__name__)


class KeyFile:
    """The keys in a file: one per line; blank lines, and those that begin with `#`, are passed over.

    Only their hashes are kept.  A change of the file counts from the next request on.  Where the changed file cannot
    be used, as when it is half written, the keys from before stay and a warning is logged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state: tuple[int, ...] = ()
        self._hashes: list[bytes] = []

    def read(self) -> None:
        """Read the file; raises `InvalidInput` where it cannot be read, holds a line that is no key, or no key."""
        state, keys = _read(self._path)
        self._state, self._hashes = state, [sha256(key).digest() for key in keys]

    def holds(self, key: bytes) -> bool:
        """Whether `key` is one of the file's, in a time that does not tell which, nor how much of it was right."""
        self._read_again_if_changed()
        given, found = sha256(key).digest(), False
        for known in self._hashes:
            found |= hmac.compare_digest(given, known)
        return found

    def _read_again_if_changed(self) -> None:
        try:
            state = _state(self._path)
        except OSError:
            state = ()
        if state != self._state:
            try:
                self.read()
            except InvalidInput as error:
                self._state = state
                log.warning("the keys from before stay: %s", error)


def first_key(path: Path) -> str:
    """The first key in a file, for a client to send; raises `InvalidInput` as `KeyFile.read` does."""
    return _read(path)[1][0].decode()


def _read(path: Path) -> tuple[tuple[int, ...], list[bytes]]:
    """State and keys of a file."""
    where, keys = str(path), []
    try:
        state, lines = _state(path), path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=where, remedy="name a file of keys") from None
    for number, line in enumerate(map(bytes.strip, lines), start=1):
        if line and not line.startswith(b"#"):
            plain = all(0x21 <= byte <= 0x7E for byte in line)
            require(plain, f"line {number} is no key", where=where, remedy="write keys in ASCII, without spaces")
            keys.append(line)
    require(bool(keys), "holds no key", where=where, remedy="write one key per line")
    return state, keys


def _state(path: Path) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size, status.st_ino


class Keys:
    """Who may ask: who has a key of `users`, and, for administration, of `admins`, whose keys are good for all.

    Without `users` anybody may ask; without `admins` administration is theirs who may ask.
    """

    def __init__(self, users: KeyFile | None = None, admins: KeyFile | None = None) -> None:
        self._users, self._admins = users, admins

    @property
    def of_users(self) -> bool:
        """Whether everybody who asks for something needs one."""
        return self._users is not None

    @property
    def of_admins(self) -> bool:
        """Whether administration needs one of its own."""
        return self._admins is not None

    def require_user(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `NoAccess` unless `headers` carry a key where one is needed."""
        if self._users is not None:
            _require(headers, [self._users, self._admins], "an API key")

    def require_admin(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `NoAccess` unless `headers` carry a key of administration where one is needed."""
        if self._admins is None:
            self.require_user(headers)
        else:
            _require(headers, [self._admins], "an administration key")


def read_keys(users: str | None, admins: str | None) -> Keys | None:
    """The keys in the files with these paths, None without any; raises `InvalidInput` where one cannot be used."""
    files = [None if path is None else KeyFile(Path(path)) for path in (users, admins)]
    for file in files:
        if file is not None:
            file.read()
    return Keys(*files) if any(files) else None


def _require(headers: Mapping[bytes, bytes], files: Sequence[KeyFile | None], needed: str) -> None:
    key = given_key(headers)
    if key is None:
        raise NoAccess(f"{needed} is needed; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`")
    found = [file.holds(key) for file in files if file is not None]
    if not any(found):
        raise NoAccess(f"{needed} is needed, and the key that was sent is none that this server knows")


def given_key(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The key in `headers`, if any."""
    if API_KEY in headers:
        return headers[API_KEY].strip()
    value = headers.get(AUTHORIZATION, b"")
    return value[len(BEARER) :].strip() if value[: len(BEARER)].lower() == BEARER else None
