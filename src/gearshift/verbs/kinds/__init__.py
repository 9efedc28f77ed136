"""Kinds of engines as objects: a verb finds the kind of a plan, a profile or a project, and calls it."""
