"""Requests: admission, answers, and the events of one service."""
