"""Where a watch reports its findings: one small class for each place, an `Outlet`.

`terminal` lines or JSON, and a live table   `webhook` findings to Slack and the like
`opentelemetry` the API's instruments, and so Prometheus
`emf` CloudWatch's embedded metric format   `page` the last hour as a page   `alarms` ready alarm templates
Specification: spec/10-watch.md, WCH-24 to WCH-27.
"""
