"""Ctrl-C in a process that plans: from the moment on at which it says that there is a plan, a plan is written."""
