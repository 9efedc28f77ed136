"""Plans and runs as pages and tables.

A page is a list of sections. `rows_page` and `reporting/language/page` make those of plans (their charts are in
`charts` and `run_charts`, what they show in `shown` and `runs`, what they share in `plan_parts`),
`comparison` and `reporting/language/comparison` those of compared planners, and `caches_page` that of learned
caches. `drawing` and `templates` make HTML of them. Shared with the command line: `headline`, `cost`
and `gear_rows`.
"""
