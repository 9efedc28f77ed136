"""Compare ways to plan pipelines: of several nodes, or several of one node on the same devices."""
