"""Engines with continuous batching, simulated step by step."""

from gearshift.simulator.engines.language_simulation import LanguageSimulation
from gearshift.simulator.engines.simulate_language import simulate_language

__all__ = ["LanguageSimulation", "simulate_language"]
