"""Verbs that turn files people have into files of Gearshift."""
