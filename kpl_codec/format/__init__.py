"""The bytes of aggregated records: frames, messages, user records, their keys and sizes. See
spec/01-aggregated-record.md and spec/02-hash-keys.md."""
