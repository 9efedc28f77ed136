"""Systems that are no gear plans, simulated for comparison."""
