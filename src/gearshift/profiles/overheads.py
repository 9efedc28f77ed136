"""The profiled time around models, which every prediction includes."""

from collections.abc import Sequence

import msgspec

from gearshift.profiles.profile import Profile


class Overheads(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds outside of models: `front_end_s` per request, of which `router_s` occupy the router.

    `per_batch_s` and `per_sample_s` pass around a batch of each model and for each of its samples;
    for a model measured in several places, the largest.
    """

    front_end_s: float
    router_s: float
    per_batch_s: dict[str, float]
    per_sample_s: dict[str, float]


def overheads_of(profile: Profile, models: Sequence[str] | None = None) -> Overheads:
    names = profile.models if models is None else models
    curves = {name: [c for c in profile.curves if c.model == name and c.segment == 0] for name in names}
    return Overheads(
        front_end_s=profile.front_end_s,
        router_s=profile.router_s,
        per_batch_s={name: max(c.overhead_per_batch_s for c in curves[name]) for name in names},
        per_sample_s={name: max(c.overhead_per_request_s for c in curves[name]) for name in names},
    )
