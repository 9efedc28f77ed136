"""One model at all loads: dynamic batching (CascadeServe 6.2) and stand-alone engines (Ken 5.2)."""

from gearshift.planner.baselines import one_gear
from gearshift.planner.space.cascade_search import single_models

PLANNER = one_gear.planner("single", single_models, single_models=True)
