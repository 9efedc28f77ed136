"""Charts and pages for people: drawn here as SVG and HTML, with a little script for pointing at things.

`charts` has the parts of a chart, `scales` axes, `colours` one colour for each thing, `numbers`
figures in words, `page` whole pages and tables. Nothing here knows what a plan is.
"""
