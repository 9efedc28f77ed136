import numpy as np
import torch

from benchmarks.caches.hindsight import fastest, in_hindsight, with_oracle
from gearshift.caches.building.problem import Problem, joint_outcome
from gearshift.caches.network.learned_cache import learned_cache
from gearshift.caches.network.train import Explored, Trained

SAMPLES, CLASSES, BLOCKS = 300, 4, 6
BEST = np.arange(SAMPLES) % CLASSES


def explored() -> tuple[list[Explored], torch.Tensor, Problem]:
    """Predictors that are right the more often, the later they are asked, and sure where they are right."""
    generator = torch.Generator().manual_seed(0)
    found, said = [], []
    for layer in range(BLOCKS - 1):
        torch.manual_seed(layer)
        cache = learned_cache("FC(16)", (8,), CLASSES).requires_grad_(False)
        cache.selector[0].weight.zero_()[:, 0] = 1.0  # as sure as the likeliest class is likely
        cache.selector[2].weight.fill_(1.0)
        nothing = np.zeros(0, dtype=bool)
        found.append(Explored(layer, "FC(16)", (8,), Trained(cache, (), (), nothing, nothing)))
        clear = torch.rand(SAMPLES, generator=generator) < 0.3 + 0.1 * layer
        logits = torch.rand((SAMPLES, CLASSES), generator=generator)
        logits[clear, torch.from_numpy(BEST)[clear]] += 8
        said.append(logits)
    problem = Problem(
        layer_s=np.ones(BLOCKS), layer=np.arange(BLOCKS - 1), lookup_s=np.full(BLOCKS - 1, 0.05),
        hit_rate=np.zeros(BLOCKS - 1), accuracy=np.ones(BLOCKS - 1), memory_bytes=np.zeros(BLOCKS - 1), target=0.97,
    )  # fmt: skip
    return found, torch.stack(said), problem


def test_knowing_the_samples_is_faster_than_the_model_and_an_oracle_is_faster_still() -> None:
    found, said, problem = explored()
    known, oracle = in_hindsight(problem, found, said, BEST, np.zeros(CLASSES))
    assert with_oracle(oracle) < fastest(known) < problem.base_s
    assert joint_outcome(oracle, tuple(range(len(oracle)))).accuracy == 1


def test_a_class_that_never_comes_is_answered_no_more_with_a_prior_against_it() -> None:
    found, said, problem = explored()
    without = np.flatnonzero(BEST > 0)
    prior = np.array([-50.0, 0.0, 0.0, 0.0])
    rates = [
        in_hindsight(problem, found, said[:, without], BEST[without], one)[1].hit_rate.mean()
        for one in (np.zeros(CLASSES), prior)
    ]
    assert rates[1] > rates[0]
