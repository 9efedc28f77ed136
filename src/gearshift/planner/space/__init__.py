"""The planning request, and the cascades, placements and devices that a plan may have."""
