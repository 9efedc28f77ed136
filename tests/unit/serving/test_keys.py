import hmac
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gearshift.errors import InvalidInput, NoAccess
from gearshift.serving.keys import KeyFile, first_key, given_key, read_keys

FIRST, SECOND, ADMIN = "first-key", "second-key", "admin-key"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Files of two users' keys and of one of administration."""
    users, admins = tmp_path / "users", tmp_path / "admins"
    users.write_text(f"# who\n{FIRST}\n\n  {SECOND}  \n")
    admins.write_text(ADMIN)
    return users, admins


def key_of(path: Path) -> KeyFile:
    file = KeyFile(path)
    file.read()
    return file


def change(path: Path, text: str) -> None:
    """Write `text` so that the file's time differs also where the clock is coarse."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def asking(key: str) -> dict[bytes, bytes]:
    return {b"x-api-key": key.encode()}


def test_each_line_is_a_key_but_for_comments_and_blanks(files):
    file = key_of(files[0])
    assert file.holds(b"first-key")
    assert file.holds(b"second-key")
    for other in (b"", b"# who", b"# who\n", b"first", b"first-keyy", b"FIRST-KEY", b"third-key"):
        assert not file.holds(other)


def test_every_key_is_compared_whole_whichever_fits(files, monkeypatch):
    compared = []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append((len(given), len(known)))
        return hmac.compare_digest(given, known)

    file = key_of(files[0])
    monkeypatch.setattr("gearshift.serving.keys.hmac", SimpleNamespace(compare_digest=compare))
    for key in (b"first-key", b"second-key", b"f", b""):
        compared.clear()
        file.holds(key)
        assert compared == [(32, 32)] * 2


def test_a_client_sends_the_first_key_of_a_file(files):
    assert first_key(files[0]) == FIRST
    files[0].write_text("# none\n")
    with pytest.raises(InvalidInput, match="holds no key"):
        first_key(files[0])


def test_a_changed_file_counts_without_restart(files):
    file = key_of(files[0])
    change(files[0], "third-key\n")
    assert file.holds(b"third-key")
    assert not file.holds(b"first-key")


@pytest.mark.parametrize("text", ["", "# none\n", "two words\n", "k\u00e9y\n", None])
def test_a_changed_file_that_cannot_be_used_leaves_the_keys_from_before(files, caplog, text):
    file = key_of(files[0])
    if text is None:
        files[0].unlink()
    else:
        change(files[0], text)
    with caplog.at_level(logging.WARNING):
        assert file.holds(b"first-key")
        assert file.holds(b"second-key")
    assert len(caplog.records) == 1
    assert "first-key" not in caplog.text
    change(files[0], "third-key\n")
    assert file.holds(b"third-key")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "holds no key"), ("# none", "holds no key"), ("good\nwith space\n", "line 2 is no key"), ("\x00", "line 1")],
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start_without_showing_keys(tmp_path, text, reason):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=reason) as raised:
        read_keys(str(path), None)
    assert "with space" not in str(raised.value)


def test_a_file_that_is_not_there_is_refused_at_the_start(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        read_keys(None, str(tmp_path / "nothing"))


def test_without_files_there_are_no_keys():
    assert read_keys(None, None) is None


@pytest.mark.parametrize(
    ("with_users", "with_admins", "opens_use", "opens_administration"),
    [
        (True, True, {FIRST, SECOND, ADMIN}, {ADMIN}),
        (True, False, {FIRST, SECOND}, {FIRST, SECOND}),
        (False, True, {FIRST, SECOND, ADMIN, ""}, {ADMIN}),
    ],
)
def test_which_key_opens_what(files, with_users, with_admins, opens_use, opens_administration):
    keys = read_keys(str(files[0]) if with_users else None, str(files[1]) if with_admins else None)
    for key in (FIRST, SECOND, ADMIN, ""):
        headers = asking(key) if key else {}
        for opens, require in ((opens_use, keys.require_user), (opens_administration, keys.require_admin)):
            if key in opens:
                require(headers)
            else:
                with pytest.raises(NoAccess, match="key is needed"):
                    require(headers)


def test_a_key_that_is_not_known_is_not_repeated(files):
    with pytest.raises(NoAccess) as raised:
        read_keys(str(files[0]), None).require_user(asking("guessed"))
    assert "guessed" not in str(raised.value)


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({b"authorization": b"Bearer abc"}, b"abc"),
        ({b"authorization": b"bearer  abc "}, b"abc"),
        ({b"x-api-key": b" abc"}, b"abc"),
        ({b"authorization": b"Basic abc"}, None),
        ({b"authorization": b"abc"}, None),
        ({}, None),
    ],
)
def test_a_key_is_a_bearer_or_has_its_own_header(headers, key):
    assert given_key(headers) == key
