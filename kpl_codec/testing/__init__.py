"""Tools for tests of Kinesis code: local servers, injected faults, Hypothesis strategies.

Nothing is imported here: take the module you want (each needs its own part of the ``testing`` extra).
"""
