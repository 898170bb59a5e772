"""Ledgers: what producers have put and consumers have handled, as lines of JSON. See spec/15-audit.md."""
