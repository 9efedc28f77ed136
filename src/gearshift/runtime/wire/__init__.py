"""Messages between the router and its workers, and the connections that carry them."""
