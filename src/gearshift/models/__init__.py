"""A user's models and project: settings, loading, certainty, what outputs are declared."""
