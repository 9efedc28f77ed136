"""Policies that give workers cores."""
