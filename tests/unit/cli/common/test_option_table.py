"""Options made from the table of a verb arrive as the keywords of its function, in their units."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from gearshift.cli.common.option_table import options_of
from gearshift.cli.common.output import Output, verb
from gearshift.support.files import PathLike
from gearshift.verbs.common.options import GIBIBYTES, MILLISECONDS, Option


class Shared(TypedDict, total=False):
    ranges: Annotated[int, Option("How many.", default=20)]
    memory_bytes: Annotated[int | None, Option("Memory.", "--memory-gib", unit=GIBIBYTES)]
    seed: int


def search(
    plan: str,
    *,
    limit_s: Annotated[float | None, Option("The limit.", "--limit-ms", unit=MILLISECONDS)] = None,
    cores: Annotated[Sequence[int], Option("Core counts.")] = (1,),
    models: Annotated[Sequence[str] | None, Option("Models.")] = None,
    place: Annotated[PathLike | None, Option("A file.")] = None,
    scope: Annotated[Literal["all", "some"], Option("Where.")] = "all",
    jobs: Annotated[int | None, Option("Processes.", least=1)] = None,
    quick: Annotated[bool, Option("Quickly.")] = False,
    out: PathLike | None = None,
    **asked: Unpack[Shared],
) -> None:
    """A verb."""


class Base(msgspec.Struct, kw_only=True):
    port: Annotated[int, msgspec.Meta(description="The port.")] = 8000


class Settings(Base, kw_only=True):
    journal: Annotated[PathLike | None, Option("The journal.")] = None


def run(
    *words: object, table: Any = search, without: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Result:
    @click.command("search")
    @options_of(table, without=without)
    @verb
    def command(output: Output, **options: Any) -> None:
        click.echo(json.dumps(options, default=str))

    return CliRunner().invoke(command, [str(word) for word in words], env=env, auto_envvar_prefix="GEARSHIFT_SEARCH")


def options(*words: object, **how: Any) -> dict[str, Any]:
    done = run(*words, **how)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_keywords_that_have_no_option_get_no_flag_and_the_others_their_defaults() -> None:
    assert options() == {
        "limit_s": None,
        "cores": [1],
        "models": None,
        "place": None,
        "scope": "all",
        "jobs": None,
        "quick": False,
        "ranges": 20,
        "memory_bytes": None,
    }


def test_values_arrive_in_the_unit_of_the_keyword() -> None:
    found = options("--limit-ms", 150, "--memory-gib", 0.5, "--cores", "1,2", "--models", "a, b", "--quick")
    assert (found["limit_s"], found["memory_bytes"]) == (0.15, 1 << 29)
    assert (found["cores"], found["models"], found["quick"]) == ([1, 2], ["a", "b"], True)


@pytest.mark.parametrize("value", [0, -3, "inf", "nan"])
def test_a_quantity_that_is_not_positive_is_refused_in_the_words_of_its_flag(value: object) -> None:
    done = run("--limit-ms", value)
    assert done.exit_code == 2
    assert f"--limit-ms is {value}; give a positive number of milliseconds" in done.stderr


@pytest.mark.parametrize(("flag", "value"), [("--jobs", 0), ("--scope", "none"), ("--cores", "one")])
def test_click_refuses_values_that_the_table_does_not_allow(flag: str, value: object) -> None:
    done = run(flag, value)
    assert done.exit_code == 2
    assert flag in done.stderr


def test_the_environment_names_an_option_as_its_flag() -> None:
    assert options(env={"GEARSHIFT_SEARCH_LIMIT_MS": "50"})["limit_s"] == 0.05


def test_a_command_may_leave_options_out() -> None:
    assert set(options(table=search, without=("limit_s", "ranges"))).isdisjoint({"limit_s", "ranges"})


def test_a_structs_own_fields_come_before_those_it_inherits() -> None:
    text = run("--help", table=Settings).stdout
    assert text.index("--journal") < text.index("--port")
    assert options("--journal", "j.log", table=Settings) == {"journal": str(Path("j.log")), "port": 8000}
