"""``kpl-codec inspect``: one record byte by byte, its defects, and how the KCL handles it."""

from __future__ import annotations

import argparse
import base64
import tempfile
from binascii import unhexlify
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from ..aws_errors import NO_RECORD
from ..deaggregation.explanation import MAX_NODES, Explanation, ExplanationNode, explain
from ..deaggregation.kcl import KclOutcome
from ..deaggregation.policies import opened
from ..errors import DecodeError
from ..findings import camel_keys
from ..findings.record_findings import findings_in
from ..format.frame import disguise_of, sound_end
from ..format.hash_keys import HashKeyRange
from ..format.limits import MAGIC
from ..format.records import KinesisRecord
from ..rendering.labels import plural
from ..rendering.terminal import Part, line, note, show, show_json, width
from ..shards.sequence_numbers import is_sequence_number
from .command_inputs import CapturedRecord, Unreadable, client_of, read_bytes
from .options import UsageError, add, add_aws, add_shared

#: Fields and user records that are listed for people.
_SHOWN = 400
#: Columns of the terminal: the fewest in which long lines of the tree are folded; those before the tree's
#: names; those before the text of an arrow.
_FOLDED, _NAMES, _ARROWS = 80, 46, 21
#: Codes that `read_captures` reports if a file is no capture but the data of one record.
_OWN_DATA = {"json", "unknown-shape", "user-data", "utf-8", "empty", "file", "duplicate-member", "too-large"}
#: What takes data that looks like a capture as one record.
_AS_ONE = "kpl_codec.explain takes it as one record's data"

EPILOG = """\
offset and length of each field are in bytes; the arrow below a field says what is
wrong with it. canonical: the KPL would write the same bytes for these user records.

Exit status: 0 a plain record, or a sound one that the KCL delivers whole; 1 any other
record; 2 failure.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    text = "one record's data (raw, base64 or hex), or a capture: a file, also in S3; - for standard input"
    add(parser, "data DATA", f"{text}; or the base64 or hex text itself", nargs="?")
    add_shared(parser, "--stream", "--json", use="read the record from this stream")
    add(parser, "--shard-id ID", "the record's shard, with --stream")
    add(parser, "--sequence-number NUMBER", "which record of the stream or the capture")
    add_aws(parser)


def run(args: argparse.Namespace) -> int:
    """The exit status: 0 for a valid or plain record of which a KCL consumer gets all user records, else
    1."""
    if (args.data is None) == (args.stream is None):
        raise UsageError(reason="give either DATA, or --stream NAME --shard-id ID --sequence-number NUMBER")
    if args.data is not None and args.shard_id is not None:
        raise UsageError(reason="--shard-id goes with --stream")
    record, keys = _from_stream(args) if args.stream else (_from_data(args), None)
    data = record.data
    explanation = explain(
        data,
        max_nodes=MAX_NODES if args.json else _SHOWN,
        hash_key_range=keys,
        partition_key=record.partition_key,
    )
    defects = [defect for defect in explanation.defects if explanation.kind != "plain"]
    found = list(findings_in(opened([record], "report")))
    if args.json:
        nested = [one.detail for one in found if one.kind == "nested-aggregate"]
        findings = [one._asdict() for one in found]
        show_json(_facts(explanation, defects) | {"nested": nested, "findings": findings})
    else:
        _show(explanation, defects, data)
        show(*(line((f"{one.kind}: {one.detail}", "red")) for one in found[:_SHOWN]))
        if explanation.kind == "plain" and data.startswith(MAGIC):
            text = "it begins with an aggregated record's first four bytes, but has only"
            show(line((f"{text} {len(data)}: cut short?", "red")))
        show(line("the KCL: ", _kcl(explanation.kcl)))
        show(line(f"its writer: {explanation.writer}"))
    dropped = not explanation.kcl.raw and explanation.kcl.delivered < explanation.kcl.total
    return 1 if defects or dropped or found else 0


def _from_data(args: argparse.Namespace) -> KinesisRecord:
    """The record in DATA; without keys where DATA is not a capture. Raises UsageError."""
    data, number = _data(args), args.sequence_number
    if data[:4] == MAGIC:
        end = sound_end(data)
        behind = b"" if end is None else data[end:].lstrip(b"\r\n")
        if end is not None and not behind:  # of a file of one, with a line end
            data = data[:end]
        elif behind.startswith(MAGIC):
            several = f"{args.data} holds several aggregated records: the first ends at byte {end}"
            raise UsageError(reason=f"{several}; kpl-codec cat and validate read each")
    if data[:4] == MAGIC or disguise_of(data) is not None:
        if number is not None:
            raise UsageError(reason="--sequence-number goes with --stream, or with a capture as DATA")
        return KinesisRecord(None, data)
    from .command_records import read_captures  # pyarrow

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        items = list(read_captures([file.name]))
    records = [item.record for item in items if isinstance(item, CapturedRecord)]
    if number is not None:
        records = [record for record in records if record.sequence_number == number]
    unread = [item for item in items if isinstance(item, Unreadable) and item.code != "hidden"]
    if records and unread:
        note(
            f"{plural(len(unread), 'other place')} of the capture cannot be read; the first: {unread[0].text}"
        )
    if len({record.data for record in records}) > 1 and number is not None:
        shards = ", ".join(str(record.shard_id) for record in records)
        note(f"{plural(len(records), 'record')} have this sequence number ({shards}): this is the first")
    for item in items:
        if isinstance(item, Unreadable) and item.code == "other-form":
            raise UsageError(reason=f"{item.text} ({_AS_ONE})")
        if number is None and isinstance(item, Unreadable) and item.code not in _OWN_DATA:
            raise UsageError(reason=f"DATA is a capture, but {item.text} ({_AS_ONE})")
    if number is None and len(records) > 1:
        advice = "give a file with one of them"
        if first := records[0].sequence_number:
            advice = f"choose one with --sequence-number, such as {first}"
        raise UsageError(reason=f"{args.data} holds several captured records: {advice}")
    if not records and (number is not None or not items):
        raise UsageError(reason=f"DATA is a capture without such a record ({_AS_ONE})")
    return records[0] if records else KinesisRecord(None, data)


def _data(args: argparse.Namespace) -> bytes:
    """The bytes of the file DATA; without such a file, those of the frame that DATA writes in base64 or
    hex."""
    try:
        data = read_bytes(args.data)
    except UsageError:
        frame = _frame_in(str(args.data).encode(errors="surrogateescape"))
        if frame is None:
            raise
        return frame
    return _frame_in(data) or data


def _frame_in(text: bytes) -> bytes | None:
    digits = b"".join(text.split())
    for decode in (partial(base64.b64decode, validate=True), unhexlify):
        with suppress(ValueError):
            if (frame := decode(digits)).startswith(MAGIC):
                return frame
    return None


def _from_stream(args: argparse.Namespace) -> tuple[KinesisRecord, HashKeyRange | None]:
    if not (args.shard_id and args.sequence_number):
        raise UsageError(reason="--stream needs --shard-id and --sequence-number")
    # (In captures both may be any text.)
    if not args.shard_id.isprintable():
        raise UsageError(reason=f"--shard-id: {args.shard_id[:60]!r} is no shard id")
    if not is_sequence_number(args.sequence_number):
        raise UsageError(reason=f"--sequence-number: {args.sequence_number[:60]!r} is no sequence number")
    client = client_of(args)
    from ..aws.stream_reading import fetch_lineage, read_record

    record = read_record(client, args.stream, shard_id=args.shard_id, sequence_number=args.sequence_number)
    if record is None:
        raise UsageError(reason=f"{args.shard_id}: {NO_RECORD}")
    shard = fetch_lineage(client, args.stream).get(args.shard_id)
    return record, shard.hash_key_range if shard else None


# -- for people -----------------------------------------------------------------------------------


def _show(explanation: Explanation, defects: list[DecodeError], data: bytes) -> None:
    records = (
        f", {plural(explanation.user_records, 'user record')}" if explanation.user_records is not None else ""
    )
    canonical = ", canonical" if explanation.canonical else ""
    kind = (explanation.kind, "bold red" if defects else "bold green")
    show(line(f"{plural(explanation.size, 'byte')}: ", kind, records + canonical))
    lines = [line((f"{'offset':>8} {'length':>8}  {'bytes':<26} what", "bold"))]
    marked = [defect for defect in defects if defect.offset is not None]
    fold = width() >= _FOLDED
    for depth, node in explanation.root.walk():
        here = [d for d in marked if d.offset is not None and _holds(node, depth, d.offset)]
        marked = [d for d in marked if d not in here]
        parts = _node(node, depth, data, bool(here))
        lines.append(line(*parts, hang=_NAMES + 2 * min(depth, 4), fold=fold))
        arrows = (line(f"{'':>18} ", (f"▲ {defect}", "red"), hang=_ARROWS, fold=fold) for defect in here)
        lines += arrows
    lines += [
        line((f"defect: {defect}", "red")) for defect in defects if defect.offset is None or defect in marked
    ]
    if explanation.omitted:
        lines.append(line((f"... and {explanation.omitted:,} more, not listed (--json lists more)", "dim")))
    show(*lines)


def _holds(node: ExplanationNode, depth: int, offset: int) -> bool:
    """Whether the byte at ``offset`` begins ``node``, or is inside it if it has no children."""
    if node.start == offset and depth >= 2:
        return True
    return not node.children and (node.start <= offset < node.end or node.start == node.end == offset)


_STYLES = {"magic": "cyan", "digest": "cyan", "unread": "red", "plain record": "dim"}


def _node(node: ExplanationNode, depth: int, data: bytes, defective: bool) -> list[Part]:
    hexadecimal = data[node.start : min(node.end, node.start + 8)].hex(" ")
    if node.end - node.start > 8:
        hexadecimal += " …"
    if node.children:
        hexadecimal = ""
    style = "bold red" if defective else _STYLES.get(node.name, "bold" if node.children else "")
    return [
        f"{node.start:>8} {node.end - node.start:>8}  ",
        (f"{hexadecimal:<26}", "dim"),
        f" {'  ' * depth}",
        (node.name, style),
        f"  {node.value}" if node.value else "",
    ]


def _kcl(outcome: KclOutcome) -> Part:
    if outcome.raw:
        return "delivers it as one plain record"
    if outcome.delivered == outcome.total and outcome.total:
        return f"delivers all: {plural(outcome.total, 'user record')}", "green"
    where = f" at user record {outcome.record_index}" if outcome.record_index is not None else ""
    return (
        f"delivers {outcome.delivered:,} of {plural(outcome.total, 'user record')}, and drops the rest"
        f" ({outcome.reason}{where})",
        "red",
    )


# -- for machines ---------------------------------------------------------------------------------


def _facts(explanation: Explanation, defects: list[DecodeError]) -> dict[str, Any]:
    return {
        "size": explanation.size,
        "kind": explanation.kind,
        "sound": not defects,
        "canonical": explanation.canonical,
        "userRecords": explanation.user_records,
        "defects": list(map(_defect, defects)),
        "kcl": camel_keys(asdict(explanation.kcl)),
        "writer": explanation.writer,
        "omitted": explanation.omitted,
        "tree": _tree(explanation.root),
    }


def _defect(defect: DecodeError) -> dict[str, Any]:
    return {
        "code": defect.code,
        "requirement": defect.requirement,
        "offset": defect.offset,
        "recordIndex": defect.record_index,
        "text": defect.describe(),
    }


def _tree(node: ExplanationNode) -> dict[str, Any]:
    facts: dict[str, Any] = {"start": node.start, "end": node.end, "name": node.name, "value": node.value}
    if node.children:
        facts["children"] = [_tree(child) for child in node.children]
    return facts
