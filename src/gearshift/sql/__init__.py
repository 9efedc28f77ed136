"""Pipelines as functions of DuckDB."""

from gearshift.support.extras import load_extra

load_extra("duckdb", extra="sql", where="gearshift.sql")

from gearshift.sql.functions import Registered as Registered  # noqa: E402 - a missing library is told first
from gearshift.sql.functions import register as register  # noqa: E402
from gearshift.sql.queries import Query as Query  # noqa: E402
from gearshift.sql.queries import plan_query as plan_query  # noqa: E402
from gearshift.sql.steps import Step as Step  # noqa: E402
