"""Ask DuckDB a question that two models answer: a plan's pipeline as a function of SQL."""

import tempfile
from pathlib import Path

import duckdb

import gearshift
import gearshift.sql
from gearshift.traces.generate import steady

QUESTION = """
SELECT shop, count(*) AS points, avg(task_label(point)) AS share
FROM points
WHERE task(point).certainty > 0.2
GROUP BY shop
ORDER BY shop
"""

with tempfile.TemporaryDirectory() as name, duckdb.connect() as connection:
    folder = Path(name)
    gearshift.init(folder)
    gearshift.profile(folder / "gearshift.toml", out=folder / "profile")
    gearshift.write_trace(steady(50, 5), folder / "trace.csv")
    gearshift.plan(folder / "profile", folder / "trace.csv", latency_s=0.1, out=folder / "plan.json")

    connection.execute(
        "CREATE TABLE points AS SELECT i % 3 AS shop, [hash(i) % 100 / 25 - 2, hash(-i) % 100 / 25 - 2] AS point "
        "FROM range(10000) r(i)"
    )
    with gearshift.sql.register(connection, folder / "plan.json", accuracy=0.85) as registered:
        for shop, points, share in connection.sql(QUESTION).fetchall():
            print(f"shop {shop}: {points} points, {share:.2f} of label 1")
        (choice,) = (function.operator.choice for function in registered.functions.values())
        print(f"by {choice.cascades['task']}, right in {100 * choice.accuracy:.0f} %")
        print(f"{registered.rows} rows ran")
