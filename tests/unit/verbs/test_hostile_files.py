"""Whatever a file holds, and whatever is in its place, a verb ends with a sentence and exit code 2."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from gearshift.cli.main import main_group
from gearshift.plans.plan_file import read_plan
from gearshift.profiles.store import write_profile
from tests.little_task import little_profile, write_little_task

BOMB = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
CONTENTS: dict[str, Callable[[Path], object]] = {
    "deep objects": lambda path: path.write_bytes(BOMB),
    "deep lists": lambda path: path.write_bytes(b"[" * 100_000 + b"]" * 100_000),
    "deep, of a log": lambda path: path.write_bytes(b'{"timestamp":1,"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n"),
    "deep TOML": lambda path: path.write_bytes(b"a = " + b"[" * 100_000),
    "a long number": lambda path: path.write_bytes(b'{"schema_version": ' + b"9" * 100_000 + b"}\n"),
    "a long number in TOML": lambda path: path.write_bytes(b"seed = " + b"9" * 100_000 + b"\n"),
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 100),
    "a long cell": lambda path: path.write_bytes(b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"1" * 200_000),
    "a named pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
}
VERBS = {
    "inspect": ["inspect", "{}"],
    "explain": ["explain", "{}"],
    "diff": ["diff", "{}", "plan.json"],
    "report": ["report", "{}"],
    "report of a replay": ["report", "plan.json", "--replay", "{}"],
    "report of a log": ["report", "plan.json", "--replay", "{}.csv"],
    "simulate": ["simulate", "{}"],
    "simulate a trace": ["simulate", "plan.json", "--trace", "{}"],
    "simulate a network": ["simulate", "plan.json", "--network", "{}"],
    "plan": ["plan", "profile", "--trace", "{}", "--p95-ms", "200"],
    "plan on hardware": ["plan", "profile", "--trace", "trace.csv", "--p95-ms", "200", "--hardware", "{}"],
    "plan on hardware in TOML": ["plan", "profile", "--trace", "trace.csv", "--p95-ms", "200", "--hardware", "{}.toml"],
    "trace": ["trace", "{}"],
    "trace of a packed log": ["trace", "{}.gz"],
    "records": ["records", "{}", "--certainty", "a", "--correct", "b"],
    "profile": ["profile", "{}.toml"],
    "serve": ["serve", "{}", "--port", "0"],
    "query": ["query", "{}", "--plan", "plan.json"],
    "validate": ["validate", "{}"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    write_little_task(folder)
    (folder / "trace.csv").write_text("second,requests\n0,5\n1,5\n")
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_a_hostile_file_is_refused_by_a_sentence(place: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for what, make in CONTENTS.items():
        arguments = [part.format("hostile") for part in VERBS[verb]]
        named = next(Path(part) for part in arguments if part.startswith("hostile"))
        make(named)
        try:
            ended = CliRunner().invoke(main_group, arguments)
        finally:
            named.rmdir() if named.is_dir() else named.unlink()
        assert ended.exit_code == 2, f"{what}: {ended.output[-500:]}"
        assert len(ended.output) < 5_000, what


OBEYED = "\x1b]0;pwn\x07\x9b2J\u202e"


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "odd.json"],
        ["inspect", "odd"],
        ["explain", "odd.json"],
        ["diff", "odd.json", "plan.json"],
        ["diff", "plan.json", "odd.json"],
        ["simulate", "odd.json", "--trace", "trace.csv"],
        ["simulate", "odd.json", "--trace", f"{OBEYED}.csv"],
        ["report", "odd.json", "--out", f"{OBEYED}.html"],
        ["trace", "odd.log"],
        ["inspect", OBEYED, OBEYED],
        [OBEYED],
    ],
)
def test_no_name_in_a_file_does_something_to_a_terminal(
    place: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    plan = (place / "plan.json").read_text()
    for name in ("sums", "cpu-0", "small", "large", "by hand"):
        plan = plan.replace(f'"{name}"', f'"{name}{OBEYED}"'.replace("\x1b", "\\u001b").replace("\x07", "\\u0007"))
    odd = little_profile()
    curves = tuple(msgspec.structs.replace(curve, model=curve.model + OBEYED) for curve in odd.curves)
    records = replace(odd.predictions, models=tuple(model + OBEYED for model in odd.predictions.models))
    written = write_profile(replace(odd, curves=curves, predictions=records, performance=()), place / "odd")
    before = read_plan(place / "plan.json").profile.sha256
    (place / "odd.json").write_text(plan.replace(before, written.sha256).replace('"path": "profile"', '"path": "odd"'))
    line = '1.1.1.1 - - [10/Oct/2000:13:55:{:02} +0000] "GET /{} HTTP/1.1" 200 5\n'
    (place / "odd.log").write_text("".join(line.format(n, OBEYED) for n in range(9)) + OBEYED + "\n")
    ended = CliRunner().invoke(main_group, arguments)
    assert ended.output
    assert not set(ended.output) & set(OBEYED) - set("0;pwn2J]")
    assert ended.exit_code in (0, 2), ended.output
