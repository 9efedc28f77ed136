"""Options with a value for each operator."""

import click
import pytest
from click.testing import CliRunner

from gearshift.cli.common.named import Named, NamedNumber, Repeated, by_operator, named_paths, require_only, the_last
from gearshift.errors import InvalidInput


@click.command()
@click.option("--ms", cls=Repeated, type=NamedNumber(), envvar="MS")
@click.option("--file", cls=Repeated, envvar="FILES")
def command(ms: tuple[Named[float], ...], file: tuple[str, ...]) -> None:
    click.echo(f"{' '.join(map(str, ms))} | {' '.join(file)}")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], " | \n"),
        (["--ms", "5"], "5 | \n"),
        (["--ms", "a=5", "--ms", "b=2.5"], "a=5 b=2.5 | \n"),
        (["--file", "x=1.csv", "--file", "y"], " | x=1.csv y\n"),
    ],
)
def test_an_option_is_given_for_each_operator(given: list[str], told: str) -> None:
    assert CliRunner().invoke(command, given).output == told


def test_an_environment_variable_holds_one_value_with_all_its_spaces() -> None:
    done = CliRunner().invoke(command, [], env={"MS": "a=5", "FILES": "my file.csv"})
    assert done.output == "a=5 | my file.csv\n"


def test_what_is_no_number_is_told_as_for_any_option() -> None:
    done = CliRunner().invoke(command, ["--ms", "a=x"])
    assert done.exit_code == 2
    assert "'x' is not a valid float" in done.output


def test_a_value_without_a_name_is_for_all_others() -> None:
    given = [Named("", 5.0), Named("b", 7.0)]
    assert by_operator("--ms", given, ["a", "b", "c"]) == {"a": 5.0, "b": 7.0, "c": 5.0}
    assert the_last(given) == 7.0
    assert the_last([]) is None
    with pytest.raises(InvalidInput, match="--ms names operator 'b', which is not planned; name one of a"):
        by_operator("--ms", given, ["a"])
    with pytest.raises(InvalidInput, match="--ms names operator 'b', and the profile is of 'a'; leave b= out"):
        require_only("--ms", given, "a")


def test_files_are_named() -> None:
    assert {name: str(path) for name, path in named_paths("--trace", ["b=x=1.csv", "a=y"], "ab").items()} == {
        "b": "x=1.csv",
        "a": "y",
    }
    for given, message in (
        (["x.csv"], "--trace x.csv names none of a, b; write --trace a=FILE"),
        (["c=x.csv"], "names none of a, b"),
        (["a="], "names none of a, b"),
        (["a=x", "a=y"], "--trace is given twice for 'a'"),
    ):
        with pytest.raises(InvalidInput, match=message):
            named_paths("--trace", given, "ab")
