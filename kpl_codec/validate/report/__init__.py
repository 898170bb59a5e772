"""The result of a validation: `scan` counts, `build` makes a `model.Report`, `summary` and `report_page` show
it in a terminal and as one HTML page."""
