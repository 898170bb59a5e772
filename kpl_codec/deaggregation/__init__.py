"""Kinesis records in, user records out, under a policy. See spec/03."""
