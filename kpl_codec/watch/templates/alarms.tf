# Alarms on what `kpl-codec watch --stream @STREAM@ --emf` measures.
# Printed by: kpl-codec watch --print terraform --stream @STREAM@

variable "kpl_watch_topic_arns" {
  description = "SNS topics to tell"
  type        = list(string)
  default     = []
}

resource "aws_cloudwatch_metric_alarm" "kpl_watch_records_lost" {
  alarm_name          = "@STREAM@ loses user records"
  alarm_description   = "KCL consumers of @STREAM@ lose user records. Run kpl-codec watch to see whose."
  namespace           = "KplCodec/Watch"
  metric_name         = "LostUserRecordsSeen"
  dimensions          = { StreamName = "@STREAM@" }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.kpl_watch_topic_arns
}

resource "aws_cloudwatch_metric_alarm" "kpl_watch_broken_records" {
  alarm_name          = "@STREAM@ holds broken records"
  alarm_description   = "The watch found broken records on @STREAM@, or cannot read a shard."
  namespace           = "KplCodec/Watch"
  metric_name         = "OpenFindings"
  dimensions          = { StreamName = "@STREAM@", Severity = "error" }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.kpl_watch_topic_arns
}

resource "aws_cloudwatch_metric_alarm" "kpl_watch_nobody_watches" {
  alarm_name          = "@STREAM@ is not watched"
  alarm_description   = "The watch has not looked at @STREAM@ for ten minutes."
  namespace           = "KplCodec/Watch"
  metric_name         = "Polls"
  dimensions          = { StreamName = "@STREAM@" }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 2
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = var.kpl_watch_topic_arns
}
