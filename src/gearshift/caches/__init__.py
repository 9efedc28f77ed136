"""Learned caches: small networks that answer from a model's hidden outputs, so that easy samples leave early."""
