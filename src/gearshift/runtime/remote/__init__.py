"""Models that another server runs, asked over HTTP from a worker."""
