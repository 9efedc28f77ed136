"""The contract of a planner, and what every search keeps: time, progress, the best plan so far."""
