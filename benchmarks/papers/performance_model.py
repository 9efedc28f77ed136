"""How well run times by batch size and cores are predicted, and what cannot be fitted.

python -m benchmarks.papers.performance_model --data DIR [--profile FOLDER]

With --profile also of a profile that `gearshift profile --cores` wrote, on this machine.
"""

from pathlib import Path

import numpy as np

from benchmarks.papers.capacity import check_capacity, formula_seconds
from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.imported import infadapter_capacity, sponge_latency
from benchmarks.shared.tables import print_head
from gearshift.errors import InvalidInput
from gearshift.profiles.performance_model import (
    fit_performance_model,
    formula_coefficients,
    relative_errors,
)
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile


def least_squares(b: np.ndarray, c: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Sponge Eq. 2 as it is usually fitted: the least sum of squared seconds."""
    return np.linalg.lstsq(np.stack([b / c, 1 / c, b, np.ones_like(b)], axis=1), s, rcond=None)[0]


def print_measured(profile: Profile) -> None:
    """The held-out errors that stand in a profile."""
    print_head("\n| measured here | statistic | form | left out | mean error | worst | other form |")
    for one in profile.performance:
        other = "-" if one.other_form_error is None else f"{one.other_form_error:.1%}"
        errors = f"{one.held_out_points} | {one.held_out_error:.1%} | {one.held_out_worst:.1%} | {other}"
        print(f"| {one.model} | {one.statistic} | {one.form} | {errors} |")


def main() -> None:
    parser = parser_of(__doc__, data=True)
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    data = data_of(given)
    batch_sizes, cores, seconds = sponge_latency(data)
    b, c, s = (np.array(values, dtype=np.float64) for values in (batch_sizes, cores, seconds))
    print_head("| Sponge's 30 measurements, fitted to all | mean error | worst |")
    for name, found in (("least squares", least_squares(b, c, s)), ("ours, formula", formula_coefficients(b, c, s))):
        mean, worst = relative_errors(formula_seconds(list(found), b, c), s)
        print(f"| {name} | {mean:.1%} | {worst:.1%} |")
    model = fit_performance_model(batch_sizes, cores, seconds, model="sponge-resnet")
    print(
        f"\nheld out, {model.held_out_points} points: form {model.form} {model.held_out_error:.1%} in the mean and "
        f"{model.held_out_worst:.1%} at worst; the other form {model.other_form_error or np.inf:.1%}\n"
    )
    print_head("| InfAdapter, batch 1 | ms x cores | ms beside | mean error | worst | falls at |")
    for name, (counts, capacity) in infadapter_capacity(data).items():
        curve = check_capacity(counts, capacity, model=name)
        print(
            f"| {name} | {1e3 * curve.per_core_s:.1f} | {1e3 * curve.fixed_s:.2f} | {curve.mean_error:.1%} "
            f"| {curve.worst_error:.1%} | {', '.join(map(str, curve.falls_at)) or '-'} |"
        )
    counts, capacity = infadapter_capacity(data)["resnet18"]
    try:
        fit_performance_model([1] * len(counts), counts, [1 / qps for qps in capacity], model="resnet18")
    except InvalidInput as error:
        print(f"\nrefused: {error}")
    if given.profile is not None:
        print_measured(read_profile(given.profile))


if __name__ == "__main__":
    main()
