"""Ledgers: what producers have put and consumers have handled, as lines of JSON. Specification:
spec/15-audit.md."""
