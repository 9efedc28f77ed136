"""A model with learned caches as it runs."""
