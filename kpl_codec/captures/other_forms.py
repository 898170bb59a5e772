"""Forms of files that are not read, but named with what makes a capture of them. A file is never read in part
because a library is lenient, and never called plain because it is packed."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class OtherForm(NamedTuple):
    """``text``: what the file is, and what to do. ``holds_records``: it may hold aggregated records as they
    are, among other bytes that say what they belong to."""

    text: str
    holds_records: bool


#: How AWS names columns of records, in a header of CSV.
_HEADER: Final = (
    rb"(?i)(\xef\xbb\xbf)?[\w\" ,;\t.-]{0,999}(sequence_?number|partition_?key)[\w\" ,;\t.-]{0,999}\r?\n"
)
_AS_PARQUET: Final = "write its rows as Parquet or JSON first"
#: Patterns of a file's beginning.
_PACKED: Final = (
    (rb"\x1f\x8b", "gzip within gzip: unpack it first (gunzip < FILE > NEW)"),
    (rb"PAR1", "Parquet within gzip: unpack it first (gunzip < FILE > NEW)"),
    (rb"PARE", "an encrypted Parquet file: write it without encryption first"),
    (rb"BZh[1-9]", "bzip2: unpack it first (bunzip2 < FILE > NEW)"),
    (rb"\x28\xb5\x2f\xfd", "zstd: unpack it first (unzstd < FILE > NEW)"),
    (rb"\x04\x22\x4d\x18", "lz4: unpack it first (unlz4 < FILE > NEW)"),
    (rb"\xfd7zXZ\x00", "xz: unpack it first (unxz < FILE > NEW)"),
    (rb"\xff\xfe|\xfe\xff|\x00\x00\xfe\xff", "UTF-16 or UTF-32: write it as UTF-8 first"),
)
_CONTAINERS: Final = (
    (rb"PK\x03\x04", "a zip archive: unpack it first (unzip FILE)"),
    (rb"[^\x00]{1,100}\x00.{156,255}ustar", "a tar archive: unpack it first (tar -xf FILE)"),
    (rb"ORC(?![ -~]{4})", f"an ORC file: {_AS_PARQUET}"),
    (rb"Obj\x01", f"an Avro file: {_AS_PARQUET}"),
    (rb"ARROW1\x00\x00", f"an Arrow file: {_AS_PARQUET}"),
)
_TEXTS: Final = (
    (_HEADER, "CSV: write its rows as JSON first, a row a line, with data in base64"),
    (
        rb"(.{0,999}\n)?RECORDS\t",
        "what the AWS CLI prints for people: write aws kinesis get-records --output json again",
    ),
)
#: A line of JSON: of a text that has one, only the lines that are something else are named.
_JSON_LINE: Final = re.compile(rb"\n[{\[][{\[\"]")
#: The magic in base64, where texts of base64 begin: one behind the other, or in a list of JSON.
_BASE64: Final = re.compile(rb"[\s\w+/=\"\[\],-]*")
_MAGIC_IN_BASE64: Final = re.compile(rb"(?<![\w+/-])84maw")
_BASE64_TEXT: Final = "base64 text: decode it first (tr -- -_ +/ < FILE | base64 -di > NEW)"


def other_form(head: bytes) -> OtherForm | None:
    """What a file is that begins with ``head`` and is read as nothing else; None for any other file."""
    forms = [(pattern, OtherForm(text, holds_records=False)) for pattern, text in _PACKED]
    forms += [(pattern, OtherForm(text, holds_records=True)) for pattern, text in _CONTAINERS]
    if _JSON_LINE.search(head) is None:
        forms += [(pattern, OtherForm(text, holds_records=False)) for pattern, text in _TEXTS]
    for pattern, form in forms:
        if re.match(pattern, head, re.DOTALL):
            return form
    base64 = _BASE64.match(head)
    if base64 is not None and _MAGIC_IN_BASE64.search(base64.group()):
        return OtherForm(_BASE64_TEXT, holds_records=False)
    return None
