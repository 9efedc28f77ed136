"""Standard output as verbs find it, tried in processes of their own."""

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gearshift.cli.common import streams
from gearshift.cli.common.streams import end_as_at_ctrl_c, interrupted_code, write_result
from tests.often import first_short

VERB = """
import os, sys
import click
from gearshift.cli.common.output import Output, verb
from gearshift.cli.common.streams import make_usable

@click.command()
@click.argument("how")
@verb
def command(output: Output, how: str) -> None:
    if how == "bug":
        raise ZeroDivisionError("of nought")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "terminated":
        raise KeyboardInterrupt(15)
    print("printed by a user's file")
    os.system("echo printed by its child")
    output.json({"path": sys.argv[-1]})
    output.say(f"wrote {sys.argv[-1]}")

make_usable()
command(sys.argv[1:])
"""


def run(*arguments: str, redirected: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", f'"$0" "$@" {redirected}', sys.executable, "-c", VERB, *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("place", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_json_is_alone_on_standard_output_whatever_a_users_file_prints(place: str) -> None:
    done = run("--json", place, "well")
    assert json.loads(done.stdout) == {"path": "well"}
    assert {line.split()[0] for line in done.stderr.decode().splitlines()} == {"printed", "wrote"}


def test_json_goes_through_process_substitution(tmp_path: Path) -> None:
    run("well", "--json", redirected=f">(cat > {tmp_path}/json; echo > {tmp_path}/done) | cat; sleep 0.2")
    assert json.loads((tmp_path / "json").read_text()) == {"path": "/dev/fd/63"}


@pytest.mark.parametrize("encoding", first_short(["ascii", "utf-8", "latin-1"]))
def test_names_that_the_terminal_cannot_show_are_shown_otherwise(encoding: str) -> None:
    strange = os.fsdecode("mod\u00e8le \u6a21".encode() + b" \xff")
    done = run("--json", "-", strange, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"].startswith("mod\u00e8le \u6a21")
    assert run(strange, PYTHONIOENCODING=encoding).returncode == 0


@pytest.mark.parametrize(
    ("how", "code", "kind"), [("bug", 70, "bug"), ("interrupt", 130, "interrupted"), ("terminated", 143, "interrupted")]
)
def test_every_end_is_written_as_json(how: str, code: int, kind: str) -> None:
    done = run("--json", "-", how)
    assert done.returncode == code
    assert json.loads(done.stdout)["error"]["kind"] == kind


def test_a_closed_standard_output_stops_nothing_but_a_result_for_it() -> None:
    done = run("well", redirected=">&-")
    assert (done.returncode, done.stderr) == (0, b"")
    done = run("--json", "-", "well", redirected=">&-")
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1]
        == b"error: standard output: cannot be written (it is closed); choose another place"
    )


def test_a_full_standard_output_is_told() -> None:
    for arguments in (["well"], ["--json", "-", "well"]):
        done = run(*arguments, redirected="> /dev/full")
        assert done.returncode == 2
        assert b"error: standard output: cannot be written (No space left on device)" in done.stderr
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr


class Pipe(io.FileIO):
    """Counts how often there was no room."""

    refused = 0

    def write(self, data: Any) -> int | None:
        taken = super().write(data)
        self.refused += taken is None
        return taken


@pytest.mark.parametrize("buffered", [False, True])
def test_a_slow_reader_of_a_pipe_that_does_not_wait_gets_the_whole_result_and_is_not_asked_again_and_again(
    monkeypatch: pytest.MonkeyPatch, buffered: bool
) -> None:
    here, there = os.pipe()
    os.set_blocking(there, False)
    result = os.urandom(1 << 20)
    with open(here, "rb", buffering=0) as reader, Pipe(there, "wb") as pipe, ThreadPoolExecutor(1) as threads:
        file = io.BufferedWriter(pipe) if buffered else pipe
        monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=file))
        written = threads.submit(write_result, result)
        read, most = bytearray(), 0
        while len(read) < len(result):
            read += reader.read(1 << 16)
            most += 4
            with suppress(TimeoutError):
                written.result(0.01)
        file.flush()
    assert read == result
    assert pipe.refused <= most


def test_a_bug_is_told_where_no_traceback_can_be_kept() -> None:
    done = run("bug", TMPDIR="/proc", TEMP="/proc", TMP="/proc", redirected="")
    told = done.stderr.decode()
    assert done.returncode == 70
    if not Path(tempfile.gettempdir()).is_dir():
        assert "set TMPDIR" in told
    assert told.startswith("error: a bug in gearshift (ZeroDivisionError: of nought)")
    assert "Traceback" not in told


def test_what_a_search_ends_that_took_a_signal_has_the_exit_code_of_that_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_signals", [])
    assert interrupted_code(KeyboardInterrupt()) == 130
    with suppress(KeyboardInterrupt):
        end_as_at_ctrl_c(signal.SIGTERM, None)
    assert interrupted_code(KeyboardInterrupt()) == 143
