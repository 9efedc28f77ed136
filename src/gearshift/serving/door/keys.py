"""API keys: files of keys, which are re-read when changed, and the rights of each kind of key."""

import hmac
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from gearshift.errors import Forbidden, InvalidInput, NoAccess, require
from gearshift.serving.door.open_exchanges import End, OpenExchanges

AUTHORIZATION, API_KEY = b"authorization", b"x-api-key"
BEARER = b"bearer "
SHORTEST_KEY_BYTES = 16
LARGEST_FILE_BYTES = 256 << 10
MOST_PROBLEMS = 3
"""Bad lines that one message names."""
READ_AGAIN_S = 1.0
"""Interval for reading a file that looks unchanged: two changes in one clock tick look like one.
"""

SETTLED_S = 2.0
"""A file that has not changed for this time counts as completely written."""

PLAIN_REMEDY = "write keys in ASCII, without spaces"
SEVERAL, SEND_ONE = "several keys are sent", "send one, as `Authorization: Bearer KEY` or `x-api-key: KEY`"

Shown = tuple[bytes, bool]
"""The hash of a key, and whether it was shown as one of administration."""

log = logging.getLogger(__name__)


class KeyFile:
    """The keys in a file: one per line; blank lines and lines that begin with `#` are ignored.

    The current content of the file counts from the next request on; if the file is empty, gone or
    unreadable, it has no keys.  An invalid line is ignored, and so is a last line without a line
    break while the file is younger than `SETTLED_S`: it may be half written.  Only hashes of keys
    are kept.
    """

    def __init__(self, path: Path, *, warns_of_mode: bool = True, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = path, now
        self._state: tuple[int, ...] | None = None
        self._digest = b""
        self._hashes: list[bytes] = []
        self._kept = frozenset[bytes]()
        """With that of a last line that may be half written: what it has let in goes on."""
        self._read_s = float("-inf")
        self._warns_of_mode = warns_of_mode

    def require_usable(self) -> None:
        """Raise `InvalidInput` if the file is unreadable, has an invalid line, or no key."""
        keys, problems = _keys_in(_read(self._path)[1], whole=True)
        where, remedy = str(self._path), "write one key per line"
        require(not problems, "; ".join(problems[:MOST_PROBLEMS]), where=where, remedy=remedy)
        require(bool(keys), "holds no key", where=where, remedy=remedy)

    def holds(self, key: bytes) -> bool:
        """Whether the file has `key`; takes the same time whichever key and prefix match."""
        return self.knows(sha256(key).digest())

    def knows(self, digest: bytes) -> bool:
        """The same by the key's hash."""
        self.look()
        found = False
        for known in self._hashes:
            found |= hmac.compare_digest(digest, known)
        return found

    def keeps(self, digest: bytes) -> bool:
        """Whether what has shown the key of this hash may go on, by the file as it was last read."""
        return digest in self._kept

    def look(self) -> bytes:
        """Load the current keys: read the file if it looks changed, else every `READ_AGAIN_S`.

        Returns a value that differs after each change of the content.
        """
        try:
            state = _state(os.stat(self._path))
        except OSError:
            state = ()
        now_s = self._now()
        if state == self._state and 0 <= now_s - self._read_s < READ_AGAIN_S:
            return self._digest
        whole = self._state is None
        self._state, self._read_s = state, now_s
        try:
            status, content = _read(self._path)
            self._warn_of_mode(status)
        except InvalidInput as error:
            self._take(str(error).encode(), [], [error.what], [])
            return self._digest
        whole = whole or now_s - status.st_ctime >= SETTLED_S
        digest = sha256(content).digest() + bytes([whole])
        if digest != self._digest:
            self._take(digest, *_keys_in(content, whole=whole), _keys_in(content, whole=True)[0])
        return self._digest

    def _take(self, digest: bytes, keys: list[bytes], problems: list[str], kept: list[bytes]) -> None:
        if digest != self._digest and (problems or not keys):
            said = "; ".join(problems[:MOST_PROBLEMS]) or "it holds no key"
            who = "its other lines count" if keys else "nobody has a key of it now"
            log.warning("%s: %s; %s", self._path, said, who)
        self._digest, self._hashes = digest, [sha256(key).digest() for key in keys]
        self._kept = frozenset(sha256(key).digest() for key in kept)

    def _warn_of_mode(self, status: os.stat_result) -> None:
        if status.st_mode & (stat.S_IROTH | stat.S_IWOTH) and self._warns_of_mode:
            self._warns_of_mode = False
            log.warning("other users of this machine can read or write %s; chmod o-rw it", self._path)


def first_key(path: Path) -> str:
    """Return the first key in a file, for a client; raises `InvalidInput` if there is none."""
    lines = [line for line in map(bytes.strip, _read(path)[1].splitlines()) if line and not line.startswith(b"#")]
    require(bool(lines), "holds no key", where=str(path), remedy="write one key per line")
    require(_is_plain(lines[0]), "holds a line that is no key", where=str(path), remedy=PLAIN_REMEDY)
    return lines[0].decode()


def _read(path: Path) -> tuple[os.stat_result, bytes]:
    """Return state and content of a regular file; raises `InvalidInput` if unreadable."""
    where, remedy = str(path), "name a file of keys"
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            require(stat.S_ISREG(status.st_mode), "is no regular file", where=where, remedy=remedy)
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=where, remedy=remedy) from None
    require(len(content) <= LARGEST_FILE_BYTES, "is larger than 256 KiB", where=where, remedy=remedy)
    return status, content


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _keys_in(content: bytes, *, whole: bool) -> tuple[list[bytes], list[str]]:
    """Return valid keys, and the faults of other lines; `whole`: completely written."""
    *ended, last = content.split(b"\n")
    if whole:
        ended, last = [*ended, last], b""
    keys, problems = [], []
    for number, line in enumerate(map(bytes.strip, ended), start=1):
        if not line or line.startswith(b"#"):
            continue
        if not _is_plain(line):
            problems.append(f"line {number} is no key, which is ASCII without spaces")
        elif len(line) < SHORTEST_KEY_BYTES:
            problems.append(f"the key in line {number} is shorter than {SHORTEST_KEY_BYTES} characters")
        else:
            keys.append(line)
    if last.strip():
        problems.append(f"line {len(ended) + 1} has no line break at its end, so it may be half written")
    return keys, problems


def _is_plain(line: bytes) -> bool:
    return line.isascii() and line.decode().isprintable() and b" " not in line


def _state(status: os.stat_result) -> tuple[int, ...]:
    """Return values that change with the file; unlike mtime, its ctime cannot be set back."""
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


class Keys:
    """Access rights: keys of `users` allow requests, keys of `admins` also administration.

    Without `users` anybody may send requests.  With `users` only, nobody may administer, since
    users are many.  A request or call that `admit_user` or `admit_admin` lets in is ended within a
    second after its key is revoked.
    """

    def __init__(self, users: KeyFile | None = None, admins: KeyFile | None = None) -> None:
        self._users, self._admins = users, admins
        self.open = OpenExchanges[Shown](self._look, self._still_admits)

    @property
    def of_users(self) -> bool:
        return self._users is not None

    @property
    def of_admins(self) -> bool:
        return self._admins is not None

    def admit_user(self, headers: Mapping[bytes, bytes], end: End) -> End:
        """As `require_user`; calls `end` if the key is revoked before what is returned is called."""
        digest = self.require_user(headers)
        return _nothing if digest is None else self.open.add((digest, False), end)

    def admit_admin(self, headers: Mapping[bytes, bytes], end: End) -> End:
        """The same for administration."""
        return self.open.add((self.require_admin(headers), True), end)

    def require_user(self, headers: Mapping[bytes, bytes]) -> bytes | None:
        """Raise `NoAccess` if a key is needed and `headers` have no valid one; else return its hash."""
        if self._users is None:
            return None
        return _require(headers, self._users, self._admins, "an API key")

    def require_admin(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Raise `NoAccess` without a valid administration key, `Forbidden` if none exist; else return its hash."""
        if self._admins is not None:
            return _require(headers, self._admins, None, "an administration key")
        self.require_user(headers)
        raise Forbidden(
            "administration is closed, as this server has keys of users alone", remedy="serve with --admin-keys"
        )

    def _look(self) -> list[bytes]:
        return [file.look() for file in (self._users, self._admins) if file is not None]

    def _still_admits(self, shown: Shown) -> bool:
        digest, as_admin = shown
        files = (self._admins,) if as_admin else (self._users, self._admins)
        return any(file.keeps(digest) for file in files if file is not None)


def read_keys(users: str | None, admins: str | None) -> Keys | None:
    """Read the keys in these files, None without any; raises `InvalidInput` if unusable."""
    files = _files(users, admins)
    for file in filter(None, files):
        file.require_usable()
        file.look()
    return Keys(*files) if any(files) else None


def keys_in(users: str | None, admins: str | None) -> Keys | None:
    """Return keys as `read_keys`, without checks, for processes other than the router."""
    files = _files(users, admins, warn_of_mode=False)
    return Keys(*files) if any(files) else None


def _files(users: str | None, admins: str | None, *, warn_of_mode: bool = True) -> list[KeyFile | None]:
    return [None if path is None else KeyFile(Path(path), warns_of_mode=warn_of_mode) for path in (users, admins)]


def _nothing() -> None:
    pass


def _require(headers: Mapping[bytes, bytes], file: KeyFile, other: KeyFile | None, needed: str) -> bytes:
    """Return the hash of a valid key."""
    key = given_key(headers)
    if key is None:
        raise NoAccess(f"{needed} is needed; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`")
    digest = sha256(key).digest()
    found = file.knows(digest)
    if other is not None:
        found |= other.knows(digest)
    if not found:
        raise NoAccess(f"{needed} is needed, and the key that was sent is none that this server knows")
    return digest


def given_key(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the key in `headers`; raises `InvalidInput` for several: servers may pick either."""
    value = headers.get(AUTHORIZATION, b"")
    bearer = value[len(BEARER) :].strip() if value[: len(BEARER)].lower() == BEARER else None
    alone = headers.get(API_KEY)
    if alone is None:
        key = bearer
    else:
        key = alone.strip()
        require(bearer is None or bearer == key, SEVERAL, remedy=SEND_ONE)
    require(key is None or b", " not in key, SEVERAL, remedy=SEND_ONE)  # repeated headers are joined
    return key
