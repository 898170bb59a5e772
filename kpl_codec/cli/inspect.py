"""``kpl-codec inspect``: one record, byte by byte, and what others would make of it."""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
from collections.abc import Iterator
from typing import Any

from ..deaggregation.explanation import Explanation, Node, explain
from ..deaggregation.kcl import Outcome
from ..errors import DecodeError, NotAggregated
from ..format.codec import decode
from ..format.hash_keys import HashKeyRange, parse_hash_key
from ..format.records import UserRecord
from ..limits import MAGIC
from .source import UsageError, add_connection, client_of, read_bytes
from .terminal import paint, print_json

HELP = "Show one record byte by byte, with its defects, and what the KCL and others make of it."

#: Other implementations to ask, where they can be had: adapters of ``kpl_codec.conformance``.
OTHERS = ("aws_kinesis_agg",)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "data", nargs="?", metavar="DATA", help="a file, - for standard input, or base64 or hex text itself"
    )
    parser.add_argument(
        "--format",
        choices=["auto", "raw", "base64", "hex"],
        default="auto",
        help="how the data is written (default: raw, unless as base64 or hex it is a frame)",
    )
    parser.add_argument("--stream", metavar="NAME", help="take the record straight from this stream")
    parser.add_argument("--shard-id", metavar="ID", help="... from this shard")
    parser.add_argument("--sequence-number", metavar="N", help="... with this sequence number")
    add_connection(parser)
    parser.add_argument(
        "--range", metavar="START:END", help="hash key range of its shard, for the KCL's range rule"
    )
    parser.add_argument("--records", action="store_true", help="list the user records (keys and lengths)")
    parser.add_argument("--no-others", action="store_true", help="do not ask other implementations")
    parser.add_argument("--max-nodes", type=int, default=400, help="tree lines at most (default: 400)")
    parser.add_argument("--json", action="store_true", help="JSON instead of the tree")


def run(args: argparse.Namespace) -> int:
    """0 for a sound or plain record, 1 for a defective one. Raises KplError for what cannot be read."""
    hash_key_range = None
    if args.stream:
        data, hash_key_range = _from_stream(args)
    elif args.data is not None:
        data = unwrap(_read(args), args.format)
    else:
        raise UsageError(reason="no data: give a file, -, text, or --stream --shard-id --sequence-number")
    if args.range:
        start, _, end = args.range.partition(":")
        hash_key_range = HashKeyRange(parse_hash_key(start), parse_hash_key(end))
    found = explain(data, max_nodes=args.max_nodes, hash_key_range=hash_key_range)
    defects = [defect for defect in found.defects if not isinstance(defect, NotAggregated)]
    others = {} if args.no_others else dict(ask_others(data))
    if args.json:
        print_json(_facts(found, defects, others, data if args.records else None))
    else:
        _show(found, defects, data)
        _show_readers(found, others)
        if args.records:
            _show_records(data)
    return 1 if defects else 0


def _read(args: argparse.Namespace) -> bytes:
    """The file's bytes; or the argument itself, where it is no file but may be data."""
    try:
        return read_bytes(args.data)
    except UsageError:
        text = str(args.data).encode()
        if args.format in ("base64", "hex") or (
            args.format == "auto" and next(_frames(text), None) is not None
        ):
            return text
        raise


def unwrap(data: bytes, written: str) -> bytes:
    """The record's bytes out of what was read. Raises UsageError for what is not written so."""
    if written == "raw":
        return data
    if written == "auto":
        return next(_frames(data), data) if data[:4] != MAGIC else data
    text = b"".join(data.split())
    try:
        return base64.b64decode(text, validate=True) if written == "base64" else bytes.fromhex(text.decode())
    except (binascii.Error, ValueError, UnicodeDecodeError):
        raise UsageError(reason=f"the data is not {written}") from None


def _frames(data: bytes) -> Iterator[bytes]:
    """The frame that ``data`` is when read as base64 or hex, if it is one."""
    for written in ("base64", "hex"):
        with contextlib.suppress(UsageError):
            read = unwrap(data, written)
            if read[:4] == MAGIC:
                yield read


def _from_stream(args: argparse.Namespace) -> tuple[bytes, HashKeyRange | None]:
    if not (args.shard_id and args.sequence_number):
        raise UsageError(reason="--stream needs --shard-id and --sequence-number")
    client = client_of(args)
    from ..aws.reading import read_record
    from ..aws.shard_map import fetch_lineage

    record = read_record(client, args.stream, args.shard_id, args.sequence_number)
    if record is None:
        raise UsageError(reason=f"{args.shard_id} holds no record with this sequence number")
    return record.data, fetch_lineage(client, args.stream).hash_key_range(args.shard_id)


# -- what others make of it -----------------------------------------------------------------------


def ask_others(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each of `OTHERS` really does with ``data``, run in a process of its own.

    ``outcome``: same, plain, lost, differs, refused, crashed, not-installed; with ``delivered``, the
    number of user records, and ``detail``.
    """
    from ..conformance import Program, ProgramError, adapter_command

    try:
        expected: list[UserRecord] | None = list(decode(data))
    except DecodeError:
        expected = None
    for name in OTHERS:
        try:
            with Program(adapter_command(name), timeout=20) as program:
                version = str(program.hello.get("version", "?"))
                answer = program.ask({"op": "decode", "id": "inspect", "data": data.hex()})
        except ProgramError as error:
            yield name, {"outcome": "not-installed", "detail": str(error)}
        else:
            yield f"{name} {version}", _compared(answer, expected)


def _compared(answer: dict[str, Any], expected: list[UserRecord] | None) -> dict[str, Any]:
    if "error" in answer:
        return {"outcome": "refused", "detail": str(answer["error"])}
    if answer.get("plain"):
        return {"outcome": "plain", "delivered": 1}
    if "user_records" not in answer:
        return {"outcome": "crashed", "detail": str(answer)}
    got = [
        (r.get("partition_key"), r.get("explicit_hash_key"), r.get("data")) for r in answer["user_records"]
    ]
    if expected is None:
        return {"outcome": "differs" if got else "lost", "delivered": len(got)}
    ours = [(r.partition_key, r.explicit_hash_key, r.data.hex()) for r in expected]
    if got == ours:
        return {"outcome": "same", "delivered": len(got)}
    wrong = sum(a != b for a, b in zip(got, ours, strict=False))
    outcome = "lost" if len(got) < len(ours) else "differs"
    return {"outcome": outcome, "delivered": len(got), "expected": len(ours), "wrong": wrong}


def _said(outcome: dict[str, Any]) -> str:
    kind, delivered = outcome["outcome"], outcome.get("delivered", 0)
    if kind == "same":
        return paint(f"delivers the same {delivered} user records", "green")
    if kind == "plain":
        return "hands it on unopened, as a plain record"
    if kind == "not-installed":
        return paint("could not be asked (is it installed?)", "dim")
    if kind in ("refused", "crashed"):
        return paint(f"{kind}: {outcome['detail'][:200]}", "yellow")
    if "expected" in outcome:
        text = f"delivers {delivered} of {outcome['expected']} user records, {outcome['wrong']} of them wrong"
    else:
        text = f"delivers {delivered} user records out of a broken frame"
    return paint(text + (", and loses the rest in silence" if kind == "lost" else ""), "red")


def _kcl_said(outcome: Outcome) -> str:
    if outcome.raw:
        return "hands it on unopened, as a plain record"
    if outcome.delivered == outcome.total and outcome.total:
        return paint(f"delivers all {outcome.total} user records", "green")
    where = f" at user record {outcome.record_index}" if outcome.record_index is not None else ""
    return paint(
        f"delivers {outcome.delivered} of {outcome.total} user records, and drops the rest"
        f" ({outcome.reason}{where})",
        "red",
    )


# -- for people -----------------------------------------------------------------------------------


def _show(found: Explanation, defects: list[DecodeError], data: bytes) -> None:
    kind = paint(found.kind, "red" if defects else "green", "bold")
    records = f", {found.user_records:,} user records" if found.user_records is not None else ""
    print(f"{found.size:,} bytes: {kind}{records}{', canonical' if found.canonical else ''}")
    marked = [defect for defect in defects if defect.offset is not None]
    print(paint(f"{'offset':>8} {'length':>8}  {'bytes':<26} what", "bold"))
    for depth, node in found.root.walk():
        here = [d for d in marked if d.offset is not None and _holds(node, depth, d.offset)]
        marked = [d for d in marked if d not in here]
        print(_line(node, depth, data, bool(here)))
        for defect in here:
            print(f"{'':>18} {paint('▲ ' + str(defect), 'red')}")
    for defect in (d for d in defects if d.offset is None or d in marked):
        print(paint(f"defect: {defect}", "red"))
    if found.omitted:
        print(paint(f"... and {found.omitted:,} more, not listed (--max-nodes)", "dim"))


def _holds(node: Node, depth: int, offset: int) -> bool:
    """Whether the byte at ``offset`` is the first of ``node`` (a field or a user record), or within it
    where nothing finer is known."""
    if node.start == offset and depth >= 2:
        return True
    return not node.children and (node.start <= offset < node.end or node.start == node.end == offset)


_STYLES = {"magic": ("cyan",), "digest": ("cyan",), "unread": ("red",), "plain record": ("dim",)}


def _line(node: Node, depth: int, data: bytes, defective: bool) -> str:
    shown = data[node.start : min(node.end, node.start + 8)].hex(" ")
    if node.end - node.start > 8:
        shown += " …"
    if node.children:
        shown = ""
    style = ("red", "bold") if defective else _STYLES.get(node.name, ("bold",) if node.children else ())
    value = f"  {node.value}" if node.value else ""
    return (
        f"{node.start:>8} {node.end - node.start:>8}  {paint(f'{shown:<26}', 'dim')} "
        f"{'  ' * depth}{paint(node.name, *style)}{value}"
    )


def _show_readers(found: Explanation, others: dict[str, dict[str, Any]]) -> None:
    print(f"the KCL: {_kcl_said(found.kcl)}")
    for name, outcome in others.items():
        print(f"{name}: {_said(outcome)}")


def _show_records(data: bytes) -> None:
    try:
        records = decode(data)
    except DecodeError as error:
        print(f"user records: none, {error}")
        return
    for i, record in enumerate(records):
        explicit = f", explicit hash key {record.explicit_hash_key}" if record.explicit_hash_key else ""
        print(f"{i:>8}  {record.partition_key!r}, {len(record.data):,} bytes{explicit}")


# -- for machines ---------------------------------------------------------------------------------


def _facts(
    found: Explanation, defects: list[DecodeError], others: dict[str, dict[str, Any]], data: bytes | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "size": found.size,
        "kind": found.kind,
        "sound": not defects,
        "canonical": found.canonical,
        "user_records": found.user_records,
        "defects": [
            {
                "code": defect.code,
                "requirement": defect.requirement,
                "offset": defect.offset,
                "record_index": defect.record_index,
                "text": defect.describe(),
            }
            for defect in defects
        ],
        "kcl": found.kcl._asdict(),
        "others": others,
        "omitted": found.omitted,
        "tree": _tree(found.root),
    }
    if data is not None:
        with contextlib.suppress(DecodeError):
            facts["records"] = [
                {
                    "partition_key": record.partition_key,
                    "explicit_hash_key": record.explicit_hash_key,
                    "data_length": len(record.data),
                }
                for record in decode(data)
            ]
    return facts


def _tree(node: Node) -> dict[str, Any]:
    facts: dict[str, Any] = {"start": node.start, "end": node.end, "name": node.name, "value": node.value}
    if node.children:
        facts["children"] = [_tree(child) for child in node.children]
    return facts
