"""How commands end."""

CLEAN, FINDINGS, FAILURE, INTERRUPTED = 0, 1, 2, 130
