"""Engines that are emulated, for tests, benchmarks and the demo."""
