"""Baselines: planners that differ from ours in one idea, so that a comparison measures the idea."""
