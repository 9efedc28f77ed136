"""Pipelines: several operators planned, served and certified as one."""
