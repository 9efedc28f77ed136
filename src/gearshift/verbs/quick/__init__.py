"""Serve a plan, or models that have none yet: find them, measure them lightly, and plan for them."""
