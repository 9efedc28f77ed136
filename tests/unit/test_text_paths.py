"""Paths are text or `Path`, wherever a program may give one."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import gearshift
from gearshift.caches.store import versions
from gearshift.errors import InvalidInput
from gearshift.serving.serve import serve
from gearshift.traces.generate import steady
from gearshift.traces.network import read_network
from gearshift.verbs.common.inputs import trace_for
from gearshift.verbs.planning.operator import plan_request
from tests.little_task import little_plan, little_profile

DOCUMENTED = (
    *(plan_request, trace_for, read_network, serve),
    *(versions.read_state, versions.version_numbers, versions.switch_to),
)
"""Beside what the package exports itself."""
EXPORTED = [one for one in (getattr(gearshift, name) for name in gearshift.__all__) if inspect.isroutine(one)]


def kinds_in(annotation: Any) -> list[Any]:
    """The types that an annotation is made of."""
    return [annotation, *(kind for part in get_args(annotation) for kind in kinds_in(part))]


@pytest.mark.parametrize("function", [*EXPORTED, *DOCUMENTED, gearshift.Client, gearshift.AsyncClient])
def test_every_path_that_a_program_gives_may_be_text(function: Callable[..., object]) -> None:
    for name, parameter in inspect.signature(function).parameters.items():
        kinds = kinds_in(parameter.annotation)
        assert Path not in kinds or str in kinds, name


def test_what_is_written_to_a_path_of_text_is_read_from_one(tmp_path: Path) -> None:
    place = str(tmp_path)
    trace = steady(20, duration_s=1)
    gearshift.write_trace(trace, f"{place}/trace.csv")
    assert len(gearshift.read_trace(f"{place}/trace.csv")) == len(trace)
    profile = gearshift.write_profile(little_profile(), f"{place}/profile")
    assert gearshift.read_profile(f"{place}/profile").sha256 == profile.sha256
    gearshift.write_plan(little_plan(profile.sha256), f"{place}/plan.json")
    assert gearshift.read_plan(f"{place}/plan.json") == little_plan(profile.sha256)
    (tmp_path / "devices.toml").write_text('[[devices]]\nid = "a"\n')
    assert gearshift.read_hardware(f"{place}/devices.toml").devices[0].id == "a"


@pytest.mark.parametrize("name", ["read_trace", "read_plan", "read_profile", "read_hardware"])
def test_a_path_of_text_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(InvalidInput, match="gone: "):
        getattr(gearshift, name)("gone")


def test_certificates_to_trust_may_be_a_path(tmp_path: Path) -> None:
    for place in (tmp_path / "gone.pem", str(tmp_path / "gone.pem")):
        with pytest.raises(InvalidInput, match="no certificates can be read"):
            gearshift.replay(
                "https://127.0.0.1:9", steady(1, duration_s=1), little_profile(), emulated=True, ca_file=place
            )
