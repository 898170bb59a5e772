"""The exit statuses of the commands."""

CLEAN, FINDINGS, FAILURE, INTERRUPTED = 0, 1, 2, 130
