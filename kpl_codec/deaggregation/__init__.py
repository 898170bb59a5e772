"""Takes the user records out of Kinesis records, under a policy. See spec/03-deaggregation.md."""
