"""Baselines: planners that are ours but for one idea, so that a comparison measures the idea."""
