"""One cascade at all loads, chosen by replaying the trace itself.

AlpaServe+ (Ken 5.2), "no switching" (Ken 5.7).
"""

from gearshift.planner.baselines import one_gear
from gearshift.planner.space.cascade_search import cascade_front

PLANNER = one_gear.planner("static-cascade", cascade_front, knows_the_trace=True)
