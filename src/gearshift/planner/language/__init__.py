"""Gear plans of language models: gears by outstanding work, engines that batch by themselves."""
