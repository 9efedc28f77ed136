"""The online system: router, workers and the backends that run batches."""
