"""Processes that run models."""
