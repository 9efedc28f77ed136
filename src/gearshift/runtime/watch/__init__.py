"""Compares the served load, run times and answers with the plan."""
