"""The validate job on Spark: captured files (`engine`) and live streams (`stream`)."""
