"""What SECURITY.md promises of logs: whatever a caller's function raises, they have no data and no key. (Of
Lambda functions: tests/aws_lambda/test_logs.py.)"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kpl_codec.producer import AsyncProducer, Producer, ProducerConfig

KEY, DATA = "alice@example.com", b"card 4111"
#: What nobody answers, and gives up at once.
OUTAGE: dict[str, Any] = {
    "client_settings": {"endpoint_url": "http://127.0.0.1:9", "region": "us-east-1"},
    "config": ProducerConfig(record_ttl_ms=100),
}


def careless(*_: Any, **__: Any) -> Any:
    """What a caller's function may do: the text of its exception has the data and the key."""
    raise ValueError(KEY, DATA)


async def careless_later(*_: Any, **__: Any) -> Any:
    careless()


def threads() -> None:
    with Producer("orders", **OUTAGE, on_undelivered=careless, observe=careless) as producer:
        producer.put(KEY, DATA).add_done_callback(careless)


async def loop() -> None:
    async with AsyncProducer("orders", **OUTAGE, on_undelivered=careless_later) as producer:
        await producer.put(KEY, DATA)


@pytest.mark.requirement("PRD-34")
def test_what_a_callers_function_raises_is_logged_by_class_and_place(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with caplog.at_level(logging.DEBUG, "kpl_codec"):
        threads()
        asyncio.run(loop())
    ours = [line for line in caplog.records if line.name.startswith("kpl_codec")]
    printed = capsys.readouterr()
    shown = caplog.text + printed.out + printed.err + "".join(str(line.exc_info) for line in ours)
    assert "alice" not in shown
    assert "4111" not in shown
    said = [line.getMessage() for line in ours]
    named = [text for text in said if "ValueError in " in text and "test_promises.py, line" in text]
    failed = ("on_undelivered", "on_undelivered", "observe", "a callback of a delivery")
    assert sorted(text.partition(" failed")[0].split(": ")[-1] for text in named) == sorted(failed)
