"""Options, output and tables that verbs share."""
