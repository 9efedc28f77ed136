"""Plans and runs as pages and tables.

A page each: `report_page` (of a plan; its charts are in `charts`), `comparison_page` (of planners;
its columns are in `comparison_columns`) and `caches_page`. Shared by them: `page` and `figures`.
Shared with the command line: `headline` and `gear_rows`.
"""
