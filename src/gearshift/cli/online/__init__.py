"""Verbs that start or ask a server: one file per verb."""
