from benchmarks.shared.imported import halves, powers_of_two


def test_halves_are_halves_and_batches_powers_of_two() -> None:
    part = halves(10, seed=0)
    assert sorted(part.tolist()) == [0] * 5 + [1] * 5
    assert powers_of_two(100) == (1, 2, 4, 8, 16, 32, 64)
