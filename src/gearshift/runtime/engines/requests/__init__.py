"""Requests to language models: as clients ask them, and as the router knows them."""
