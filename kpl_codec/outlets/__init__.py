"""Where a watch reports its findings: one small class for each place, with ``finding`` and ``measures``.

`webhook` findings to Slack and the like   `prometheus` an endpoint   `opentelemetry` the API's instruments
`emf` CloudWatch's embedded metric format   `page` the last hour as a page   `alarms` ready alarm templates
`producer_metrics` lets a producer tell its measurements to `prometheus`, `emf` and PutMetricData.
PutMetricData is in `kpl_codec.aws.sentinel_metrics`. Specification: spec/10-sentinel.md, SEN-24 to SEN-27.
"""
