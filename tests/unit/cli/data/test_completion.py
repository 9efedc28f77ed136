"""What a shell is offered to complete."""

import sys

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from gearshift.cli.main import VERBS, main_group


def offered(*arguments: str, incomplete: str) -> list[str]:
    shell = ShellComplete(main_group, {}, "gearshift", "_GEARSHIFT_COMPLETE")
    return [item.value for item in shell.get_completions(list(arguments), incomplete)]


def test_verbs_are_completed() -> None:
    assert offered(incomplete="re") == [name for name in VERBS if name.startswith("re")]


def test_options_and_choices_of_a_verb_are_completed() -> None:
    assert "--from-journal" in offered("trace", incomplete="--from")
    assert offered("completion", incomplete="z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_a_shell_asks_gearshift(shell: str) -> None:
    done = CliRunner().invoke(main_group, ["completion", shell])
    assert done.exit_code == 0
    assert "_GEARSHIFT_COMPLETE" in done.stdout


def test_listing_verbs_imports_none_of_them() -> None:
    sys.modules.pop("gearshift.cli.offline.doctor", None)
    offered(incomplete="doc")
    assert "gearshift.cli.offline.doctor" not in sys.modules
