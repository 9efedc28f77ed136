"""Connections to endpoints, and the parts of their answers that Gearshift reads."""
