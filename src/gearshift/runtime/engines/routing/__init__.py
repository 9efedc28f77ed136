"""Where requests to engines wait and go: queues, gears, faults, limits and predictions, on a given clock."""
