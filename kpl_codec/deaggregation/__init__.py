"""Kinesis records in, user records out, under a named policy. See spec/03."""
