"""A verb run as from the command line, and a little place to run verbs in."""

from pathlib import Path

from click.testing import CliRunner, Result

from gearshift.cli.main import main_group
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from tests.worlds import synthetic_profile


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main_group, [str(a) for a in arguments], catch_exceptions=False)


def planned_in(folder: Path, *options: object) -> Path:
    """The folder, with a profile, a trace and a plan by the default planner in it."""
    write_profile(synthetic_profile(models=3, samples=400), folder / "profile")
    write_trace(steady(60, 5, seed=1), folder / "t.csv")
    done = run(
        "plan", folder / "profile", "--trace", folder / "t.csv", "--p95-ms", 100, "--out", folder / "plan.json",
        *options,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder
