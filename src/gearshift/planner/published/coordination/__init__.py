"""The four steps of CascadeServe's planner."""
