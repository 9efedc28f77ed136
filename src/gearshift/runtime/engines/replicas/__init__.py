"""Engines as replicas of a plan: started, watched, and told apart."""
