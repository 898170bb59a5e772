"""The documentation's site: `make site` builds it."""
