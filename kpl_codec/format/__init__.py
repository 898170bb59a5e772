"""The bytes: frames, messages, user records, their keys and sizes. See spec/01 and spec/02."""
