import hmac
import logging
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gearshift.errors import Forbidden, InvalidInput, NoAccess
from gearshift.serving.door.keys import READ_AGAIN_S, SETTLED_S, KeyFile, first_key, given_key, keys_in, read_keys

FIRST, SECOND, THIRD, ADMIN = (
    "the-first-key-of-all",
    "the-second-key-of-all",
    "the-third-key-of-all",
    "the-key-of-admins",
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Files of two users' keys and of one of administration."""
    users, admins = tmp_path / "users", tmp_path / "admins"
    users.write_text(f"# who\n{FIRST}\n\n  {SECOND}  \n")
    admins.write_text(f"{ADMIN}\n")
    for file in (users, admins):
        file.chmod(0o600)
    return users, admins


def asking(key: str) -> dict[bytes, bytes]:
    return {b"x-api-key": key.encode()}


def holds(file: KeyFile, *keys: str) -> list[bool]:
    return [file.holds(key.encode()) for key in keys]


def test_each_line_is_a_key_but_for_comments_and_blanks(files):
    file = KeyFile(files[0])
    assert holds(file, FIRST, SECOND) == [True, True]
    others = ("", "# who", "# who\n", FIRST[:-1], FIRST + "y", FIRST.upper(), THIRD)
    assert not any(holds(file, *others))


def test_every_key_is_compared_whole_whichever_fits(files, monkeypatch):
    compared = []

    def compare(given: bytes, known: bytes) -> bool:
        compared.append((len(given), len(known)))
        return hmac.compare_digest(given, known)

    file = KeyFile(files[0])
    monkeypatch.setattr("gearshift.serving.door.keys.hmac", SimpleNamespace(compare_digest=compare))
    for key in (FIRST, SECOND, "f", ""):
        compared.clear()
        holds(file, key)
        assert compared == [(32, 32)] * 2


def test_a_client_sends_the_first_key_of_a_file_whatever_its_length(files):
    assert first_key(files[0]) == FIRST
    files[0].write_text("# for another server\nshort")
    assert first_key(files[0]) == "short"
    files[0].write_text("# none\n")
    with pytest.raises(InvalidInput, match="holds no key"):
        first_key(files[0])


# While serving -------------------------------------------------------------------------------------------------------


def test_a_changed_file_counts_from_the_next_request_on(files):
    file = KeyFile(files[0])
    assert holds(file, FIRST, THIRD) == [True, False]
    files[0].write_text(f"{THIRD}\n")
    assert holds(file, FIRST, THIRD) == [False, True]


@pytest.mark.parametrize("text", ["", "# none\n", "two words\n", "k\u00e9y-of-more-than-16\n", "short\n", None])
def test_who_empties_spoils_or_deletes_the_file_revokes_all_its_keys(files, caplog, text):
    file = KeyFile(files[0])
    assert holds(file, FIRST, SECOND) == [True, True]
    if text is None:
        files[0].unlink()
    else:
        files[0].write_text(text)
    with caplog.at_level(logging.WARNING):
        assert holds(file, FIRST, SECOND, "short", "") == [False] * 4
    assert [record.message.endswith("nobody has a key of it now") for record in caplog.records] == [True]
    files[0].write_text(f"{THIRD}\n")
    assert holds(file, FIRST, THIRD) == [False, True]


def test_a_file_that_cannot_be_read_any_more_means_nobody(files):
    file = KeyFile(files[0])
    assert holds(file, FIRST) == [True]
    files[0].unlink()
    files[0].mkdir()
    assert holds(file, FIRST) == [False]
    files[0].rmdir()
    os.mkfifo(files[0])  # nobody writes to it, and nobody waits for that
    assert holds(file, FIRST) == [False]


def test_a_line_counts_once_it_is_ended(files, caplog):
    file = KeyFile(files[0])
    assert holds(file, FIRST) == [True]
    with files[0].open("w") as half:
        half.write(f"{SECOND}\n{FIRST[:-1]}")
        half.flush()
        with caplog.at_level(logging.WARNING):
            assert holds(file, SECOND, FIRST[:-1], FIRST) == [True, False, False]
        assert "line 2 has no line break at its end" in caplog.text
        half.write(f"{FIRST[-1]}\n")
        half.flush()
        assert holds(file, SECOND, FIRST[:-1], FIRST) == [True, False, True]


def test_a_line_without_an_end_counts_once_nothing_more_comes(files):
    now_s = time.time()
    file = KeyFile(files[0], now=lambda: now_s)
    assert holds(file, FIRST) == [True]
    files[0].write_text(THIRD)
    assert holds(file, FIRST, THIRD) == [False, False]
    now_s = files[0].stat().st_ctime + SETTLED_S
    assert holds(file, FIRST, THIRD) == [False, True]


def test_a_key_without_a_line_break_counts_at_the_start(tmp_path):
    (tmp_path / "keys").write_text(FIRST)
    keys = read_keys(str(tmp_path / "keys"), None)
    keys.require_user({b"x-api-key": FIRST.encode()})


def test_a_change_that_leaves_size_and_time_as_they_were_counts_too(files):
    file, before = KeyFile(files[0]), files[0].stat()
    assert holds(file, FIRST) == [True]
    files[0].write_text(files[0].read_text().replace(FIRST, FIRST.upper()))
    os.utime(files[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert holds(file, FIRST, FIRST.upper()) == [False, True]


def test_a_change_that_the_file_system_does_not_show_counts_soon(files, monkeypatch):
    now_s = 100.0
    file = KeyFile(files[0], now=lambda: now_s)
    monkeypatch.setattr("gearshift.serving.door.keys._state", lambda status: (1,))
    assert holds(file, FIRST) == [True]
    files[0].write_text(f"{THIRD}\n")
    now_s += 0.9 * READ_AGAIN_S
    assert holds(file, FIRST) == [True]
    now_s += 0.1 * READ_AGAIN_S
    assert holds(file, FIRST, THIRD) == [False, True]


def test_an_unchanged_file_is_not_read_for_every_request(files, monkeypatch):
    read = []
    real = KeyFile._warn_of_mode
    monkeypatch.setattr(KeyFile, "_warn_of_mode", lambda self, status: (read.append(1), real(self, status)))
    file = KeyFile(files[0], now=lambda: 1.0)
    for _ in range(50):
        holds(file, FIRST)
    assert len(read) == 1


def test_a_file_that_others_can_read_is_warned_of_once(files, caplog):
    files[0].chmod(0o644)
    file = KeyFile(files[0], now=lambda: 0.0)
    with caplog.at_level(logging.WARNING):
        for mode in (0o644, 0o600, 0o646):
            files[0].chmod(mode)
            assert holds(file, FIRST) == [True]
    assert [record.message for record in caplog.records] == [
        f"other users of this machine can read or write {files[0]}; chmod o-rw it"
    ]


# At the start --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no key"),
        ("# none\n", "holds no key"),
        (f"{FIRST}\nwith many a space in it\n", "line 2 is no key"),
        ("\x00" * 20 + "\n", "line 1 is no key"),
        ("x\n", "the key in line 1 is shorter than 16 characters"),
        (f"{FIRST}\n" * 20_000, "is larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start_without_showing_keys(tmp_path, text, reason):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=reason) as raised:
        read_keys(str(path), None)
    assert "many a space" not in str(raised.value)
    assert FIRST not in str(raised.value)


def test_a_file_that_is_not_there_is_refused_at_the_start(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        read_keys(None, str(tmp_path / "nothing"))


def test_a_process_that_starts_later_takes_the_file_as_it_is(files):
    files[0].write_text("")
    keys = keys_in(str(files[0]), str(files[1]))
    with pytest.raises(NoAccess):
        keys.require_user(asking(FIRST))
    keys.require_admin(asking(ADMIN))


def test_without_files_there_are_no_keys():
    assert read_keys(None, None) is None


# Who may -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("with_users", "with_admins", "opens_use", "opens_administration", "refused"),
    [
        (True, True, {FIRST, SECOND, ADMIN}, {ADMIN}, NoAccess),
        (True, False, {FIRST, SECOND}, set(), Forbidden),
        (False, True, {FIRST, SECOND, ADMIN, ""}, {ADMIN}, NoAccess),
    ],
)
def test_which_key_opens_what(files, with_users, with_admins, opens_use, opens_administration, refused):
    keys = read_keys(str(files[0]) if with_users else None, str(files[1]) if with_admins else None)
    for key in (FIRST, SECOND, ADMIN, ""):
        headers = asking(key) if key else {}
        if key in opens_use:
            keys.require_user(headers)
        else:
            with pytest.raises(NoAccess, match="key is needed"):
                keys.require_user(headers)
        if key in opens_administration:
            keys.require_admin(headers)
        else:
            with pytest.raises(refused if key in opens_use else NoAccess):
                keys.require_admin(headers)


def test_with_keys_of_users_alone_administration_is_closed_with_the_remedy(files):
    with pytest.raises(Forbidden, match=r"administration is closed.*--admin-keys"):
        read_keys(str(files[0]), None).require_admin(asking(FIRST))


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
        ({b"x-api-key": b"abc", b"authorization": b"Basic xyz"}, b"abc"),
        ({b"x-api-key": b"abc", b"authorization": b"Bearer abc"}, b"abc"),
        ({b"authorization": b"Basic abc"}, None),
        ({b"authorization": b"abc"}, None),
        ({}, None),
    ],
)
def test_a_key_is_a_bearer_or_has_its_own_header(headers, key):
    assert given_key(headers) == key


@pytest.mark.parametrize(
    "headers",
    [
        {b"x-api-key": b"abc, def"},
        {b"authorization": b"Bearer abc, Bearer def"},
        {b"x-api-key": b"abc", b"authorization": b"Bearer def"},
    ],
)
def test_several_keys_are_refused_whichever_is_good(headers):
    with pytest.raises(InvalidInput, match="several keys"):
        given_key(headers)
