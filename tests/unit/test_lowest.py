"""The lowest versions that `pyproject.toml` admits: what is promised must hold on them."""

import pytest

from tests.lowest import constraints, lowest

NEEDED = {
    "httptools": (0, 6, 4),  # older ones take folded headers, names with blanks and heads that end in a bare LF
    "protobuf": (6, 33, 5),  # CVE-2026-0994: nested messages without a bound
    "torch": (2, 10),  # CVE-2025-32434 and CVE-2026-24747: files that run code in spite of `weights_only`
    "ray": (2, 52),  # the first with token authentication; CVE-2025-62593
}


@pytest.mark.parametrize(("name", "needed"), NEEDED.items(), ids=NEEDED.keys())
def test_no_version_is_admitted_on_which_a_promise_does_not_hold(name, needed):
    admitted = dict(one.split("==") for one in constraints())
    assert tuple(map(int, admitted[name].split("."))) >= needed


def test_the_lowest_version_is_the_first_bound():
    assert lowest("grpcio-tools>=1.81.2,<2; sys_platform != 'win32'") == ("grpcio-tools", "1.81.2")


@pytest.mark.parametrize("without", ["click", "click<9", "click>8,<9"])
def test_a_dependency_without_a_lowest_version_is_named(without):
    with pytest.raises(SystemExit, match=rf"'{without}' has no lowest version"):
        lowest(without)
