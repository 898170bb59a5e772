"""Findings about the input: unreadable, captured twice, or empty."""

from __future__ import annotations

from .kind import ONLY_THE_CHECK, Kind

#: Codes of `CaptureError`; a finding's kind is ``capture-`` and the code.
_CODES = {
    "": "A part of the capture that cannot be read",
    "file": "A file that is cut short, or not of its format",
    "empty": "An empty file: the capture may have been lost",
    "too-large": "A JSON value, or an item of a list, of more than 32 MiB",
    "json": "A value that is cut short, or was never JSON",
    "duplicate-member": "JSON that has a member twice",
    "utf-8": "Text that is not UTF-8",
    "no-data-column": "A Parquet file without a column of Kinesis data",
    "unknown-shape": "JSON that is no known form of Kinesis record",
    "base64": "Data that should be base64, and is not",
    "missing-field": "A record without a field it needs",
    "wrong-type": "A field of a type that it cannot have",
    "timestamp": "An unreadable arrival time",
    "gone": "A record that the stream no longer gives",
}

INPUT = (
    Kind(
        "duplicate",
        "warning",
        "The same user record captured twice",
        "Captures overlap, or a consumer wrote its output twice. It is one user record on the stream.",
        "Nobody who reads the stream. A job over the same captures counts the user record twice.",
        "Drop duplicates on shard, sequence number and sub-sequence number together.",
        "LIN-2",
    ),
    *(
        Kind(
            f"capture-{code}" if code else "capture",
            "error",
            title,
            "What it holds was not checked.",
            ONLY_THE_CHECK,
            "Look at the place named, and capture that part again.",
            "CAP-1",
        )
        for code, title in _CODES.items()
    ),
    Kind(
        "capture-user-data",
        "error",
        "User data, not Kinesis records",
        "Firehose writes such JSON files to S3: it has taken the user records out of their aggregates, so "
        "there is nothing left to check.",
        ONLY_THE_CHECK,
        "Capture the stream before Firehose: GetRecords answers, Lambda events, or the stream itself "
        "(kpl-codec validate --stream).",
        "SPK-44",
    ),
    Kind(
        "capture-encoded-frame",
        "error",
        "An aggregated record that no consumer can know",
        "An aggregated record as base64, hexadecimal digits or text, or with other first four bytes (erlmld "
        "writes 00 89 9A C2, and 01 89 9A C2 if it compresses). All its user records arrive as one piece.",
        "Every reader, if the stream holds it like this.",
        "If the stream holds text, fix the writer: it encodes bytes that boto3 encodes again. If only "
        "the capture does, decode it once. With a foreign magic, only its own library reads it.",
        "SPK-45",
    ),
    Kind(
        "no-records",
        "warning",
        "Nothing to check",
        "The input holds no Kinesis record. That does not mean that the stream is clean.",
        ONLY_THE_CHECK,
        "Check that this is the right place, and that the capture wrote something.",
        "SPK-21",
    ),
)
