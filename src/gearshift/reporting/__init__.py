"""Plans and runs as pages and tables.

A page each: `report_page` (of a plan; its charts are in `charts` and `run_charts`, what it shows in
`content` and `runs`), `pipelines_page`, `comparison_page` (of planners; its columns are in
`comparison_columns`) and `caches_page`. All are drawn by `drawing`. Shared with the command line:
`headline`, `cost` and `gear_rows`.
"""
