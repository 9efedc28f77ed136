import pytest

from gearshift.policies.graph import BEGIN, SKIP, WAIT, node_begins


@pytest.mark.parametrize(
    ("open_edges", "live_edges", "joins_first", "has_begun", "expected"),
    [
        (1, 1, False, False, WAIT),
        (0, 1, False, False, BEGIN),
        (0, 0, False, False, SKIP),
        (2, 1, True, False, BEGIN),
        (2, 0, True, False, WAIT),
        (0, 0, True, False, SKIP),
        (0, 2, True, True, WAIT),
    ],
)
def test_a_node_begins_with_its_last_edge_or_its_first_live_one(
    open_edges: int, live_edges: int, joins_first: bool, has_begun: bool, expected: int
) -> None:
    assert node_begins(open_edges, live_edges, joins_first, has_begun) == expected
