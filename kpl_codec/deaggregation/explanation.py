"""Explains every byte of a Kinesis record's data as a tree: magic, fields and their parts, digest. Every byte
is in exactly one leaf; defects are part of it, none is raised."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Literal

from ..base.arguments import check_arguments
from ..base.values import Value
from ..errors import ChecksumMismatch, DecodeError, MalformedMessage, NotAggregated
from ..format import frame, wire
from ..format.codec import as_bytes, is_canonical
from ..format.hash_keys import HashKeyRange
from ..format.limits import DIGEST_SIZE
from . import kcl
from .kcl import RAW, KclOutcome

#: The default for how many nodes and defects are listed; further ones are only counted.
MAX_NODES = 10_000

#: The text of an unknown writer.
UNKNOWN = "unknown"

_WIRE_TYPES = ("varint", "fixed64", "length-delimited", "group", "end group", "fixed32")


NodeKind = Literal["plain", "encoded frame", "broken frame", "broken message", "defective", "aggregated"]


class ExplanationNode(Value):
    """The bytes ``start`` to ``end`` (exclusive), their name and what is inside them. ``value``: the number,
    key or length that they are; never record data."""

    start: int
    end: int
    name: str
    value: str = ""
    children: tuple[ExplanationNode, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, ExplanationNode]]:
        """All nodes from this one down, with their depth, in the order of the bytes."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


class Explanation(Value):
    """The result of `explain`. ``kind``: "plain", "encoded frame" (an aggregated record as text, such as
    base64), "broken frame" (wrong digest), "broken message" (no protobuf), "defective" (parts of the message
    are wrong), "aggregated".

    ``defects``: in the order of the bytes; `decode` raises the first. ``user_records``: None where they
    cannot be counted. ``canonical``: `encode` would write the same bytes. ``kcl``: what the KCL does with it.
    ``omitted``: how many nodes and defects are not listed. ``writer``: who wrote it, and how sure that is:
    "certain: KPLNET (...)".
    """

    size: int
    kind: NodeKind
    root: ExplanationNode
    defects: tuple[DecodeError, ...] = ()
    user_records: int | None = None
    canonical: bool = False
    kcl: KclOutcome = RAW
    omitted: int = 0
    writer: str = UNKNOWN

    def __repr__(self) -> str:
        return f"<Explanation of {self.size} bytes: {self.kind}, {len(self.defects)} defects>"

    @property
    def sound(self) -> bool:
        """Whether `decode` accepts it: an aggregated record without a defect."""
        return not self.defects

    def __str__(self) -> str:
        lines = [f"{self.size} bytes: {self.kind}" + (", canonical" if self.canonical else "")]
        for depth, node in self.root.walk():
            value = f"  {node.value}" if node.value else ""
            lines.append(f"{node.start:>8} {node.end - node.start:>8}  {'  ' * depth}{node.name}{value}")
        lines += [f"defect: {defect}" for defect in self.defects]
        if self.writer != UNKNOWN:
            lines.append(f"writer: {self.writer}")
        if self.omitted:
            lines.append(f"... and {self.omitted} more, not listed")
        return "\n".join(lines)


class _Budget:
    def __init__(self, left: int) -> None:
        self.left = left
        self.omitted = 0

    def take(self) -> bool:
        if self.left > 0:
            self.left -= 1
            return True
        self.omitted += 1
        return False


def explain(
    data: bytes | bytearray | memoryview,
    *,
    max_nodes: int = MAX_NODES,
    hash_key_range: HashKeyRange | None = None,
    partition_key: str | None = None,
) -> Explanation:
    """Explains every byte of ``data``. Raises TypeError if it is not bytes. ``hash_key_range``: of the
    record's shard, for the KCL's range rule. ``partition_key``: of the Kinesis record, a
    sign of its writer.

        >>> import kpl_codec as kpl
        >>> data = kpl.encode([kpl.UserRecord("customer-1", b"one"), kpl.UserRecord("customer-2", b"two")])
        >>> explanation = kpl.explain(data, hash_key_range=kpl.HashKeyRange(0, 5))
        >>> print("\\n".join(str(explanation).splitlines()[:4]))
        62 bytes: aggregated, canonical
               0       62  frame
               0        4    magic  f3899ac2
               4       42    message  42 bytes
        >>> kcl = explanation.kcl
        >>> kcl.delivered, kcl.total, kcl.reason, kcl.record_index
        (0, 2, 'out-of-range', 0)
    """
    check_arguments("explain", locals())
    from .fingerprints import fingerprint  # imported here, because only explanations need it

    if type(data) is not bytes:
        data = as_bytes(data, "explain")
    size = len(data)
    writer = str(fingerprint(data, partition_key) or UNKNOWN)
    broken: ChecksumMismatch | None = None
    try:
        frame.split_frame(data)
    except NotAggregated as error:
        kind: NodeKind = "encoded frame" if error.disguise else "plain"
        value = f"an aggregated record as {error.disguise}" if error.disguise else f"{size} bytes of data"
        root = ExplanationNode(0, size, "plain record", value)
        return Explanation(size, kind, root, defects=(error,), writer=writer)
    except ChecksumMismatch as error:
        broken = error
    budget = _Budget(max_nodes)
    start, end = 4, size - DIGEST_SIZE
    children = _nodes(data, start, end, wire.AGGREGATED_RECORD, budget)
    records = None
    defects: list[DecodeError]
    if broken is not None:
        kind, defects = "broken frame", [broken]
    else:
        try:
            message = wire.Message(data)
        except MalformedMessage as error:
            kind, defects = "broken message", [error]
        else:
            defects = _defects(message, budget)
            kind = "defective" if defects else "aggregated"
            records = message.record_count
    digest = "MD5 of the message" if broken is None else f"should be {broken.actual}"
    parts = (
        ExplanationNode(0, 4, "magic", data[:4].hex()),
        ExplanationNode(start, end, "message", f"{end - start} bytes", tuple(children)),
        ExplanationNode(end, size, "digest", f"{data[end:].hex()} ({digest})"),
    )
    return Explanation(
        size,
        kind,
        ExplanationNode(0, size, "frame", children=parts),
        tuple(defects),
        records,
        not defects and is_canonical(data),
        kcl.outcome(data, hash_key_range),
        budget.omitted,
        writer,
    )


def _defects(message: wire.Message, budget: _Budget) -> list[DecodeError]:
    budget.omitted += message.defect_count - len(message.defects)
    of_records = chain.from_iterable(map(message.defects_of, message.records()))
    listed = [defect for defect in chain(message.defects, of_records) if budget.take()]
    first = message.first_defect()
    rest = sorted((d for d in listed if d != first), key=lambda defect: defect.offset or 0)
    return [] if first is None else [first, *rest]


def _nodes(
    data: bytes, start: int, end: int, schema: wire.Schema, budget: _Budget, nesting: int = 0
) -> list[ExplanationNode]:
    """The nodes of the fields up to the first malformed one, and of the bytes after them."""
    nodes: list[ExplanationNode] = []
    reached = start
    counts = Counter[str]()
    # `_defects` reports a malformed message.
    with suppress(MalformedMessage):
        for field in wire.fields(data, start, end, nesting=nesting):
            reached = field.end
            name, wire_type = schema.get(field.number, ("", -1))
            fits = field.wire_type == wire_type
            counts[name] += fits
            if not budget.take():
                continue
            place = field.offset, field.end
            if not fits:
                kind = _WIRE_TYPES[field.wire_type]
                what = f"{name} as {kind}" if name else f"unknown field {field.number}"
                nodes.append(ExplanationNode(*place, what, "" if name else kind))
            elif name == "records":
                head = ExplanationNode(field.offset, field.start, "head", f"{field.end - field.start} bytes")
                inner = _nodes(data, field.start, field.end, wire.RECORD, budget, nesting=1)
                nodes.append(ExplanationNode(*place, f"{name}[{counts[name] - 1}]", "", (head, *inner)))
            elif schema is wire.AGGREGATED_RECORD:
                nodes.append(ExplanationNode(*place, f"{name}[{counts[name] - 1}]", _text(data, field)))
            elif wire_type == wire.VARINT:
                nodes.append(ExplanationNode(*place, name, str(field.value)))
            else:
                nodes.append(ExplanationNode(*place, name, f"{field.end - field.start} bytes"))
    if reached < end:
        nodes.append(ExplanationNode(reached, end, "unread", f"{end - reached} bytes"))
    return nodes


def _text(data: bytes, field: wire.Field) -> str:
    """The first 80 bytes of a key as text, or as bytes if they are not UTF-8."""
    more = field.end - field.start > 80
    beginning = data[field.start : min(field.end, field.start + 80)]
    text = repr(beginning)
    with suppress(UnicodeDecodeError):
        text = repr(getincrementaldecoder("utf-8")().decode(beginning, not more))
    return text + ("..." if more else "")
