"""Language models in engines that batch by themselves: the router before them, and the links to them."""
