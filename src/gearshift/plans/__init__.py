"""Gear plans as files, folders and flat tables."""
