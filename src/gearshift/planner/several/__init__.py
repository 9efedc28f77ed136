"""Several pipelines of one operator each, planned on one placement."""
