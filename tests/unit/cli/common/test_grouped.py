import click
from click.testing import CliRunner

from gearshift.cli.common.grouped import Grouped
from gearshift.cli.main import main_group
from gearshift.cli.online.serve import GROUPS


def test_options_stand_under_their_heading_and_the_rest_last() -> None:
    command = Grouped(
        "x",
        params=[click.Argument(["plan"]), *(click.Option([flag]) for flag in ("--a", "--b", "--c"))],
        groups={"First": ("--c", "--a"), "None of it": ("--absent",)},
    )
    said = CliRunner().invoke(command, ["--help"]).output
    order = [said.index(part) for part in ("First:", "--c", "--a", "Others:", "--b")]
    assert order == sorted(order)
    assert "None of it" not in said


def test_all_options_of_serve_are_in_a_group() -> None:
    serve = main_group.get_command(click.Context(main_group), "serve")
    assert serve is not None
    flags = {param.opts[0] for param in serve.params if isinstance(param, click.Option)}
    grouped = [flag for flags in GROUPS.values() for flag in flags]
    assert sorted(grouped) == sorted(flags - {"--json"})


def test_a_mistyped_verb_is_answered_with_what_is_like_it() -> None:
    said = CliRunner().invoke(main_group, ["simulte"])
    assert (said.exit_code, "did you mean simulate?" in said.output) == (2, True)
    assert "lists the verbs" in CliRunner().invoke(main_group, ["xyz"]).output
