"""Failing replicas and lost workers: who is taken out of service, and what happens to the samples they held."""
