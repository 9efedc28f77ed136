from pathlib import Path

import pytest

from gearshift.cli.views.tokens.replay import drift_in_words
from tests.two_language_models import ALONE, language_profile, write_language_plan
from tests.unit.cli.little import run


@pytest.mark.parametrize(
    ("before", "after", "changed", "others"),
    [
        (1.0, 1.02, False, False),
        (1.0, 1.3, True, False),
        (0.9, 1.3, True, False),
        (1.3, 1.31, False, True),
        (0.5, 0.5, False, True),
        (8.9, 5.1, True, True),
    ],
)
def test_engines_that_changed_and_engines_that_never_were_as_profiled_are_told_apart(
    before: float, after: float, changed: bool, others: bool
) -> None:
    told = " ".join(drift_in_words(before, after))
    assert ("meanwhile" in told, "profile them anew" in told) == (changed, others)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--log", "log.csv"), "--log is given, which plans of language models do not have; leave --log out"),
        (("--slo-ms", 100), "--slo-ms is given, which plans of language models do not have"),
        (("--processes", 2), "--processes is given, which plans of language models do not have"),
        ((), "is no URL; serve the plan, and name the server's URL up to /v1"),
    ],
)
def test_what_a_replay_of_language_models_lacks_is_refused_by_its_flag(
    options: tuple[object, ...], said: str, tmp_path: Path
) -> None:
    plan = write_language_plan(tmp_path, [ALONE], profile=language_profile())
    (tmp_path / "t.csv").write_text("arrival_s\n0.1\n")
    done = run("replay", plan, "--trace", tmp_path / "t.csv", *options)
    assert (done.exit_code, said in " ".join(done.output.split())) == (2, True), done.output
    assert run("validate", plan, "--trace", tmp_path / "t.csv", "--connections", 9).exit_code == 2
