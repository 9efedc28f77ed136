import os
from pathlib import Path

import pytest

from benchmarks.papers.capacity import check_capacity
from benchmarks.shared.imported import infadapter_capacity
from gearshift.errors import InvalidInput
from gearshift.profiles.performance_model import fit_performance_model

DATA = os.environ.get("GEARSHIFT_DATA")


def test_capacity_by_amdahls_law_fits_and_a_fall_is_named() -> None:
    cores = [1, 2, 4, 8]
    capacity = [1 / (0.05 / c + 0.002) for c in cores]
    curve = check_capacity(cores, capacity, model="m")
    assert (curve.per_core_s, curve.fixed_s) == (pytest.approx(0.05), pytest.approx(0.002))
    assert (curve.worst_error < 1e-6, curve.falls_at) == (True, ())
    assert check_capacity(cores, [*capacity[:3], 1.0], model="m").falls_at == (8,)
    with pytest.raises(InvalidInput, match="at least 3 core counts"):
        check_capacity([1, 2], [1.0, 2.0], model="m")


@pytest.mark.skipif(DATA is None, reason="GEARSHIFT_DATA names no folder of real data")
def test_infadapters_capacity_is_checked_and_not_fitted() -> None:
    for model, (cores, capacity) in infadapter_capacity(Path(str(DATA))).items():
        assert check_capacity(cores, capacity, model=model).mean_error < 0.04
        with pytest.raises(InvalidInput, match="batch size 1 alone"):
            fit_performance_model([1] * len(cores), cores, [1 / qps for qps in capacity], model=model)
