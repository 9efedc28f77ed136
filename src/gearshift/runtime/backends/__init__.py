"""Interchangeable ways to run a batch: real processes, or emulated devices."""
