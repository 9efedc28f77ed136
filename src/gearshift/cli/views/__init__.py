"""Terminal output of the verbs, by kind of engine."""
