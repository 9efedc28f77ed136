"""The search for a plan, and implementations that are chosen while a request runs: tables, and gears with them."""
