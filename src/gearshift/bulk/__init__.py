"""Whole relations through a pipeline: one cascade for all rows, no meter and no gears."""

from gearshift.support.extras import load_extra

load_extra("pyarrow", extra="sql", where="tables")
