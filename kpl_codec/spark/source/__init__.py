"""The data source `kpl-kinesis`: options, planning, reading, writing. See spec/07-spark-source.md."""
