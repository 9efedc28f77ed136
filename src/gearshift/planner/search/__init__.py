"""The default planner, `optimal`."""
