"""Ledgers: lines of JSON that say which user records producers have put, and which consumers have handled.
See spec/15-audit.md."""
