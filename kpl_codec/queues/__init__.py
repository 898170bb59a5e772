"""Queues of Kinesis with aggregated records, and channels. Specification: spec/14-queues-and-channels.md."""
