"""Verbs that need no server: one file per verb."""
