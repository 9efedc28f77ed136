"""The public names, and where each is defined; `__init__.py` imports each from there at its first use."""

from gearshift.bulk.operator import open_operator as open_operator
from gearshift.bulk.relations import map as map
from gearshift.bulk.relations import query as query
from gearshift.cascade import Cascade as Cascade
from gearshift.client.client import AsyncClient as AsyncClient
from gearshift.client.client import Client as Client
from gearshift.errors import GearshiftError as GearshiftError
from gearshift.errors import Infeasible as Infeasible
from gearshift.errors import InvalidInput as InvalidInput
from gearshift.gear import Gear as Gear
from gearshift.gear import GearPlan as GearPlan
from gearshift.hardware import Device as Device
from gearshift.hardware import Hardware as Hardware
from gearshift.hardware import identical_devices as identical_devices
from gearshift.model import Predicted as Predicted
from gearshift.models.composition import Pipeline as Pipeline
from gearshift.models.samples import Samples as Samples
from gearshift.models.torch_module import load_weights as load_weights
from gearshift.objective import Objective as Objective
from gearshift.plans.hardware_file import read_hardware as read_hardware
from gearshift.plans.plan_file import read_plan as read_plan
from gearshift.plans.plan_file import write_plan as write_plan
from gearshift.profiles.pipelines.profile_folder import Profiles as Profiles
from gearshift.profiles.pipelines.profile_folder import read_profiles as read_profiles
from gearshift.profiles.profile import Profile as Profile
from gearshift.profiles.store import read_profile as read_profile
from gearshift.profiles.store import write_profile as write_profile
from gearshift.traces.logs.journal import read_journal as read_journal
from gearshift.traces.logs.read_log import read_log as read_log
from gearshift.traces.read import read_trace as read_trace
from gearshift.traces.read import write_trace as write_trace
from gearshift.verbs.compare import compare as compare
from gearshift.verbs.doctor import doctor as doctor
from gearshift.verbs.explain import explain as explain
from gearshift.verbs.init.write_project import init as init
from gearshift.verbs.inspect import diff as diff
from gearshift.verbs.inspect import inspect as inspect
from gearshift.verbs.plan import largest_alone as largest_alone
from gearshift.verbs.plan import plan as plan
from gearshift.verbs.plan import plan_frontier as plan_frontier
from gearshift.verbs.plan import what_if as what_if
from gearshift.verbs.profile import profile as profile
from gearshift.verbs.profile import profile_from_records as profile_from_records
from gearshift.verbs.quick.serve import serve as serve
from gearshift.verbs.records import records as records
from gearshift.verbs.replay import replay as replay
from gearshift.verbs.report import report as report
from gearshift.verbs.simulate import simulate as simulate
from gearshift.verbs.validate import validate as validate
from gearshift.workload import Trace as Trace

__version__: str
__all__: list[str]
