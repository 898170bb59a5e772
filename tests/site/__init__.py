"""The documentation's site: `python -m tests.site` builds it."""
