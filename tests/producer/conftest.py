"""Clients of the stream's server, as in tests/aws."""

from tests.aws.conftest import client, faulty, readers  # noqa: F401
