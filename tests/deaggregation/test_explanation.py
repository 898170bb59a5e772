"""The byte account: what its lines say. That it has every byte once is a law (`fuzz.invariants`)."""

from __future__ import annotations

import kpl_codec as kpl
from fuzz.invariants import frame


def test_record_data_is_never_in_the_account() -> None:
    text = str(kpl.explain(kpl.encode([kpl.UserRecord("key", b"SECRET")])))
    assert "SECRET" not in text
    assert "'key'" in text
    assert "6 bytes" in text


def test_long_accounts_are_cut_and_say_so() -> None:
    data = kpl.encode([kpl.UserRecord("k", b"x")] * 100)
    explanation = kpl.explain(data, max_nodes=10)
    assert explanation.omitted > 0
    assert "not listed" in str(explanation)


def test_every_kind_of_line_of_an_account() -> None:
    """Where each part begins, how many bytes it has, and what it says."""
    record = b"\x1a\x0a\x08\x00\x10\x00\x1a\x02xy\x28\x05"  # with a field 5 that nobody knows
    message = b"\x0a\x01a\x12\x017" + record + b"\x22\x01z" + b"\x08\x07" + b"\x0a\x5a" + b"k" * 90
    lines = [tuple(line.split(maxsplit=2)) for line in str(kpl.explain(frame(message))).splitlines()[1:]]
    assert [line for line in lines if line[0].isdigit() and len(line) == 3] == [
        ("0", "135", "frame"),
        ("0", "4", "magic  f3899ac2"),
        ("4", "115", "message  115 bytes"),
        ("4", "3", "partition_key_table[0]  'a'"),
        ("7", "3", "explicit_hash_key_table[0]  '7'"),
        ("10", "12", "records[0]"),
        ("10", "2", "head  10 bytes"),
        ("12", "2", "partition_key_index  0"),
        ("14", "2", "explicit_hash_key_index  0"),
        ("16", "4", "data  2 bytes"),
        ("20", "2", "unknown field 5  varint"),
        ("22", "3", "unknown field 4  length-delimited"),
        ("25", "2", "partition_key_table as varint"),
        ("27", "92", f"partition_key_table[1]  '{'k' * 80}'..."),
        ("119", "16", "digest  2a4299f516b11c45ee0194f37a0f8d9f (MD5 of the message)"),
    ]
