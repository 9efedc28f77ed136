"""Gearshift serves machine-learning models as cascades that shift gears with load."""

__version__ = "0.1.0"
