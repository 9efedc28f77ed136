"""Implementations that are chosen while a request runs: tables, and gears with them."""
