"""Forms of files that are not read, but named with the command that makes a capture of them: it reads FILE
and writes NEW. A file is never read in part because a library is lenient, and never called plain because it
is packed or printed."""

from __future__ import annotations

import re
from typing import Final

from ..limits import MAGIC


def _wide(character: bytes, before: int, after: int) -> bytes:
    """A pattern for a character of ASCII with zeros before or after it."""
    return rb"(?:%b%b%b)" % (rb"\x00" * before, character, rb"\x00" * after)


#: How a file of JSON begins.
_JSON: Final = re.compile(rb"(\xef\xbb\xbf)?[ \t\r\n,\x1e]*[{\[]")
#: A line of JSON: of a file that has one, only the lines that are something else are named.
_JSON_LINE: Final = re.compile(rb"\n[{\[][{\[\"]")
#: The magic, and the beginning of gzip, in digits with or without anything between.
_HEX: Final = rb"(%s|1f\W*8b\W*08)" % rb"(\W+0x|\W)?".join(b"%02x" % byte for byte in MAGIC)
#: How the names begin that AWS gives to what it tells of records.
_NAMES: Final = b"data|records|partition|sequence|shard|millis|next|child|approx|stream|explicit"
#: Part of a header of CSV.
_CELLS: Final = rb"[\w\" ,;\t.-]{0,999}"
_HERE: Final = "< FILE > NEW"
_PYTHON: Final = 'python3 -c "import {}; {}"'
_TO_PARQUET: Final = "pyarrow as a, pyarrow.parquet as p, {}"
_AGAIN: Final = "write it again as JSON, with data in base64"
_PRINTED: Final = "bytes as a program prints them"


def _packed(name: str, command: str, more: str = "") -> str:
    return f"{name}: unpack it first ({command} {_HERE}){more}"


def _table(name: str, module: str, read: str) -> str:
    command = _PYTHON.format(_TO_PARQUET.format(module), f"p.write_table({read}, 'NEW')")
    return f"{name}: make it Parquet first ({command})"


#: Patterns of a file's beginning, what the file is, and the command that makes a capture of it.
_FORMS: Final = tuple(
    (re.compile(pattern, re.DOTALL), text)
    for pattern, text in (
        # compressed
        (rb"\x1f\x8b", _packed("gzip within gzip", "gunzip")),
        (rb"PAR1", _packed("Parquet within gzip", "gunzip", "; Parquet compresses its columns itself")),
        (rb"PARE", "an encrypted Parquet file: write it without encryption first"),
        (rb"BZh[1-9]", _packed("bzip2", "bunzip2")),
        (rb"\x28\xb5\x2f\xfd", _packed("zstd", "unzstd")),
        (rb"[\x50-\x5f]\x2a\x4d\x18", f"zstd or lz4: unpack it first (unzstd {_HERE}, or unlz4 {_HERE})"),
        (rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18", _packed("lz4", "unlz4")),
        (rb"\xfd7zXZ\x00", _packed("xz", "unxz")),
        (rb"\x5d\x00\x00..(\xff{8}|.{5}\x00{3})", _packed("lzma", "unlzma")),
        (rb"LZIP", _packed("lzip", "lzip -d")),
        (rb"\x89LZO\x00", _packed("lzo", "lzop -d")),
        (rb"\x1f\x9d[\x89-\x90]", _packed("compress (.Z)", "gunzip")),
        (rb"\xff\x06\x00\x00sNaPpY", _packed("Snappy", "snzip -d")),
        (rb"\x82SNAPPY\x00", _packed("Snappy as Java writes it", "snzip -d -t snappy-java")),
        (rb"\x78[\x01\x5e\x9c\xda]", _packed("zlib", "zlib-flate -uncompress")),
        # archives
        (rb"PK(\x03\x04|\x05\x06|\x07\x08)", "a zip archive: unpack it first (unzip FILE)"),
        # (Of old archives only the three numbers behind the name tell.)
        (
            rb"(?=.{0,99}\x00)(.{257}ustar|.{100}([0-7 ]{6,7}[ \x00]{1,2}){3})",
            "a tar archive: unpack it first (tar -xf FILE)",
        ),
        (rb"07070[127]", "a cpio archive: unpack it first (cpio -i < FILE)"),
        (rb"!<arch>\n", "an ar archive: unpack it first (ar x FILE)"),
        (rb"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first (7z x FILE)"),
        (rb"Rar!", "a rar archive: unpack it first (unrar x FILE)"),
        # tables, databases, binary documents
        (rb"ORC", _table("an ORC file", "pyarrow.orc as o", "o.read_table('FILE')")),
        (rb"ARROW1\x00\x00|FEA1", _table("an Arrow file", "pyarrow.feather as f", "f.read_table('FILE')")),
        (
            rb"\xff{4}..\x00\x00\x10\x00\x00\x00",
            _table("a stream of Arrow", "pyarrow.ipc as i", "i.open_stream('FILE').read_all()"),
        ),
        (
            rb"Obj\x01",
            _table("an Avro file", "fastavro as f", "a.Table.from_pylist([*f.reader(open('FILE', 'rb'))])"),
        ),
        (rb"SQLite format 3\x00|.{8}DUCK", "a database: write its rows as Parquet first"),
        (rb"SEQ[\x04-\x06]|RCF\x01", "a file of Hadoop: write its rows as Parquet first"),
        (
            rb"(?i)(\xd9\xd9\xf7)?[\x81-\x9f]?[\x81-\xbf][\x63-\x78\xa3-\xb8](%b)" % _NAMES,
            f"CBOR or MessagePack: {_AGAIN}",
        ),
        (rb"\xe0\x01\x00\xea", f"Amazon Ion: {_AGAIN}"),
        (rb"\x00.{11}(\x0d:message-type|\x0b:event-type|\x0d:content-type)", f"an event stream: {_AGAIN}"),
        (rb"\x80[\x02-\x05][\x95\]}]", f"Python's pickle: {_AGAIN}"),
        (rb"%PDF-|\x89HDF|\x93NUMPY|\x7fELF", "binary, and no capture: name the captures themselves"),
        # text in other encodings
        (
            rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff",
            f"UTF-32: make it UTF-8 first (iconv -f UTF-32 -t UTF-8 {_HERE})",
        ),
        (rb"\xff\xfe|\xfe\xff", f"UTF-16: make it UTF-8 first (iconv -f UTF-16 -t UTF-8 {_HERE})"),
        *(
            (
                rb"(%b)*%b" % (_wide(rb"\s", before, after), _wide(rb"[{\[]", before, after)),
                f"{name}: make it UTF-8 first (iconv -f {name} -t UTF-8 {_HERE})",
            )
            for name, before, after in (
                ("UTF-32LE", 0, 3),
                ("UTF-32BE", 3, 0),
                ("UTF-16LE", 0, 1),
                ("UTF-16BE", 1, 0),
            )
        ),
        # (Of a block of Hadoop, of at most 16 MiB: its size, that of its first part, and the size in there.)
        (
            rb"\x00(?!\x00{3})...\x00(?!\x00{3})...[^\x00]",
            _packed("Snappy as Hadoop writes it, it seems", "snzip -d -t hadoop-snappy"),
        ),
    )
)
#: The same of texts.
_PRINTS: Final = tuple(
    (re.compile(pattern, re.DOTALL), text)
    for pattern, text in (
        # bytes
        (
            rb"\s*\"?(84maw|H4sI|ey[AIJ]|W3s|W3[Js]|WwogI|ewog|UEFSMQ)[\w+/-]{8}",
            "text: if it is base64, decode it first (tr -d '\"' < FILE | tr -- -_ +/ | base64 -d > NEW)",
        ),
        (
            rb"(?i)\s*(unsigned char \w*\[\] = \{\s*)?[x\\'0]{0,2}%b" % _HEX,
            "hexadecimal digits: make them bytes first (xxd -r -p FILE NEW)",
        ),
        (
            rb"0+: (([\da-f]{2} ){1,16}|([\da-f]{4} ){0,8}([\da-f]{2} )?) [^\n]{0,80}(\n0+10: |\s*\Z)",
            "what xxd prints: make it bytes first (xxd -r FILE NEW)",
        ),
        (
            rb"0{6,8}:? +([\da-f]{2}|[\da-f]{4}|[\da-f]{8}|[0-7]{3}|[0-7]{6}|[01]{8}) ",
            "what hexdump, od or xxd prints, which may leave out lines: write xxd -p FILE instead",
        ),
        # records, tables
        (
            rb"\s*(<Buffer |Uint8Array\(\d+\) \[)",
            f"{_PRINTED} (Node.js): fs.writeFileSync('NEW', it) instead, or it.toString('base64') in JSON",
        ),
        (
            rb"\s*\w*[\[(]\s*(-13|243)[\s,]+(-119|137)[\s,]+(-102|154)[\s,]+(-62|194)\b",
            f'{_PRINTED} (Java, Scala, Go): Files.write(Path.of("NEW"), it) instead, or in JSON '
            "Base64.getEncoder().encodeToString(it)",
        ),
        (
            rb"\s*\[?(B@|java\.nio\.|#<|<memory at|"
            rb"[\w.]{0,200}(Record|Response|Event)s?\s?[({]\s?\[?\w+ ?[=:(])",
            f"objects as a program prints them, which may leave out data: {_AGAIN}",
        ),
        (
            rb"\s*(\[\s*)?\{\s*(?!NaN|Infinity)[A-Za-z_$]\w*: ",
            f"objects as Node.js, Java or Go prints them, perhaps without data: {_AGAIN} (JSON.stringify)",
        ),
        (rb"\s*(\[\s*)?\{'\w+': ", "what Python's repr prints: write json.dumps(it) instead, data in base64"),
        (
            rb"\s*(bytearray\()?b['\"]",
            f"{_PRINTED} (Python): write them to a file first ("
            + _PYTHON.format("ast", "open('NEW', 'wb').write(ast.literal_eval(open('FILE').read().strip()))")
            + ")",
        ),
        (rb"\s*\{(:\w+|\"\w+\") ?=> ?", f"what Ruby prints: {_AGAIN}"),
        (
            rb"(?i)(\xef\xbb\xbf)?%b(sequence_?number|partition_?key)%b\r?\n" % (_CELLS, _CELLS),
            "CSV: make it JSON first ("
            + _PYTHON.format(
                "csv, json, sys", "[print(json.dumps(row)) for row in csv.DictReader(sys.stdin)]"
            )
            + f" {_HERE}), data in base64",
        ),
        (
            rb"(RECORDS|MILLISBEHINDLATEST)\t|-{8,}\n\||(MillisBehindLatest|Records):\s",
            "what the AWS CLI prints for people: write aws kinesis get-records --output json again",
        ),
        (rb"\+-[-+]*\+\n\|", "a table as Spark and others print it, which may cut data: write it as Parquet"),
        (
            rb"(?i)\s*<(\?xml|!doctype|html|error)",
            "XML or HTML, the page of an error perhaps: download it again",
        ),
        (rb"version https://git-lfs", "a pointer of git-lfs: download the file first (git lfs pull)"),
    )
)


def looks_like_json(head: bytes) -> bool:
    """Whether a file that begins with these bytes begins as JSON does."""
    return _JSON.match(head) is not None


def other_form(head: bytes) -> str | None:
    """What a file is that begins with ``head`` and is neither Parquet, gzip, frames nor JSON, and what makes
    a capture of it; None for any other file."""
    form = next((text for pattern, text in _FORMS if pattern.match(head)), None)
    if form is None and _JSON_LINE.search(head) is None:
        form = next((text for pattern, text in _PRINTS if pattern.match(head)), None)
    return form
