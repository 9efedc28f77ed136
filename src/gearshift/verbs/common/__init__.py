"""Inputs and options that verbs share."""
