"""Forms of files that are not read, but named with the command that makes a capture of them. A file is never
read in part because a library is lenient, and never called plain because it is packed or printed."""

from __future__ import annotations

import re
from typing import Final

from ..limits import MAGIC

#: How a file of JSON begins.
_JSON: Final = re.compile(rb"(\xef\xbb\xbf)?[ \t\r\n,\x1e]*[{\[]")
_HEX = MAGIC.hex().encode()
_UTF_16 = "UTF-16: make it UTF-8 first (iconv -f UTF-16 -t UTF-8)"
#: The data of a Kinesis record as programs print bytes.
_PRINTED = "bytes as a program prints them"
#: Patterns of a file's beginning, what the file is, and the command that makes a capture of it.
_FORMS: Final = tuple(
    (re.compile(pattern, re.DOTALL), text)
    for pattern, text in (
        (rb"\x1f\x8b", "gzip within gzip: unpack it first (gunzip)"),
        (rb"PAR1", "Parquet within gzip: unpack it first (gunzip); Parquet compresses its columns itself"),
        (rb"PARE", "an encrypted Parquet file: write it without encryption first"),
        (rb"BZh[1-9]", "bzip2: unpack it first (bunzip2)"),
        (rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", "zstd: unpack it first (unzstd)"),
        (rb"\x04\x22\x4d\x18", "lz4: unpack it first (unlz4)"),
        (rb"\xfd7zXZ\x00", "xz: unpack it first (unxz)"),
        (rb"\xff\x06\x00\x00sNaPpY", "Snappy: unpack it first (snzip -d)"),
        (
            rb"\x00\x00..\x00\x00..[^\x00]",
            "Snappy as Hadoop writes it, it seems: unpack it first (snzip -d -t hadoop-snappy)",
        ),
        (rb"\x78[\x01\x5e\x9c\xda]", "zlib: unpack it first (zlib-flate -uncompress)"),
        (rb"PK\x03\x04", "a zip archive: unpack it first (unzip)"),
        (rb"[^{\[]{257}ustar", "a tar archive: unpack it first (tar -xf)"),
        (rb"ORC", "an ORC file: write it as Parquet first"),
        (rb"Obj\x01", "an Avro file: write it as Parquet or JSON first"),
        (rb"\xff\xfe|\xfe\xff|[{\[]\x00|\x00[{\[]", _UTF_16),
        (rb"(?i)\s*(0x)?%s[\da-f\s]*\Z" % _HEX, "hexadecimal digits: make them bytes first (xxd -r -p)"),
        (rb"(?i)0+:? +(f389 ?9ac2|f3 89 9a c2)", "what xxd or hexdump prints: make it bytes first (xxd -r)"),
        (rb"\s*<Buffer ", f"{_PRINTED} (Node.js): write buffer.toString('base64') instead"),
        (rb"\s*Uint8Array\(\d+\) \[", f"{_PRINTED} (Node.js): write it as Base64 instead"),
        (
            rb"\s*\[\s*(-13|243)\s*,\s*(-119|137)\s*,\s*(-102|154)\s*,\s*(-62|194)\s*,",
            f"{_PRINTED} (Java): write Base64.getEncoder().encodeToString(it) instead",
        ),
        (rb"\s*Record\(SequenceNumber=", "records as Java prints them: write their data in base64 instead"),
        (rb"\s*(\[\s*)?\{'\w+': ", "what Python's repr prints: write json.dumps(it) instead, data in base64"),
        (rb"\s*b(yte)?(array\()?['\"]", f"{_PRINTED} (Python): write base64.b64encode(it) instead"),
    )
)


def looks_like_json(head: bytes) -> bool:
    """Whether a file that begins with these bytes begins as JSON does."""
    return _JSON.match(head) is not None


def other_form(head: bytes) -> str | None:
    """What a file is that begins with ``head`` and is neither Parquet, gzip, frames nor JSON, and what makes
    a capture of it; None for any other file."""
    return next((text for pattern, text in _FORMS if pattern.match(head)), None)
