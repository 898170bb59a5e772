"""The two readings of what the KCL reads against protobuf-java itself, which the KCL uses.

    python -m fuzz.java_protobuf --messages 100000 --seed 1

The two: `kpl_codec.deaggregation.kcl`, and the executable spec's `spec.reference.kcl`. Needs a JDK (17 or
newer, with its compiler) on PATH and pyspark, whose Spark Connect jar carries protobuf-java under another
package name. Messages: `placed`, odd tags, lengths and values at every place of a message, always; and
``--messages`` of those of the vectors, damaged. Prints every difference; exit code 1 for any.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2

from kpl_codec.deaggregation import kcl
from kpl_codec.errors import MalformedMessage
from kpl_codec.format import wire
from spec.reference import kcl as reference

from . import corpus
from .invariants import field, frame, varint


def varints(value: int) -> list[bytes]:
    """``value`` as it is, padded, with bits that 32 or 64 bits do not hold, and too long."""
    higher = [varint(value | 1 << bit) for bit in (29, 31, 32, 33, 35, 63, 64, 69)]
    return [varint(value), varint(value, 2), varint(value, 10), *higher, varint(value, 11)]


def odd_fields() -> Iterator[bytes]:
    """Fields of every number and wire type that mean something, whole and cut, in every spelling."""
    content = {0: b"\x00", 1: b"12345678", 2: b"\x01a", 3: b"\x08\x01", 5: b"1234"}
    for number in (0, 1, 2, 3, 4, 5, 15):
        for wire_type in range(8):
            for tag in varints(number << 3 | wire_type):
                inner = content.get(wire_type, b"")
                yield tag + inner
                if wire_type == 3:
                    yield from (tag + inner + end for end in varints(number << 3 | 4))
                    yield tag + inner + varint((number ^ 1) << 3 | 4)
                    yield tag + inner
        yield from (varint(number << 3) + value for value in varints(0))
        yield from (varint(number << 3 | 2) + size + b"a" for size in varints(1))
    yield from (tag + b"\x00" for tag in map(varint, (2**29 - 8, 2**32 - 8, 2**32, 2**32 + 8)))


def placed() -> Iterator[bytes]:
    """Every odd field at every place: before, between and behind the fields of the message, of a user
    record and of a tag, and inside groups and unknown fields of each."""
    key, record, tag = b"\x0a\x01a", b"\x08\x00\x1a\x01x", b"\x0a\x01k\x12\x01v"
    for odd in odd_fields():
        in_record: list[bytes] = [odd]
        in_tag: list[bytes] = [odd]
        for around in (b"\x2b%b\x2c", b"\x1b%b\x1c", b"\x2b\x33%b\x34\x2c", b"\x2b\x08\x01%b\x2c"):
            in_record.append(around % odd)
            in_tag.append(around % odd)
        in_record.append(field(0x2A, odd))
        for inner in in_tag:
            in_record += [field(0x22, inner + tag), field(0x22, tag + inner)]
        for inner in in_record:
            yield key + field(0x1A, inner + record)
            yield key + field(0x1A, record + inner)
            yield key + inner + field(0x1A, record)
            yield inner + key + field(0x1A, record)
            yield key + field(0x1A, record) + inner


def library(message: bytes) -> str:
    """What `kpl_codec.deaggregation.kcl` reads, as JavaProtobuf.java writes it."""
    data = frame(message)
    try:
        tables = wire.Message(data, strict=False)
        records = list(tables.records())
    except MalformedMessage:
        return "ERR"
    if any(kcl._unreadable(record) for record in records):
        return "ERR"
    out = ["OK", *(f"p{key.encode().hex()}" for key in tables.partition_keys if key is not None)]
    out += [f"e{key.encode().hex()}" for key in tables.explicit_hash_keys if key is not None]
    for record in records:
        pk, ehk = record.partition_key_index or 0, record.explicit_hash_key_index
        out.append(_record(pk, ehk, record.data or b""))
    return " ".join(out)


def executable_spec(message: bytes) -> str:
    """The same of `spec.reference.kcl`."""
    parsed = reference.read(message)
    if parsed is None:
        return "ERR"
    out = ["OK", *(f"p{reference.java_text(key).encode().hex()}" for key in parsed.partition_key_table)]
    out += [f"e{reference.java_text(key).encode().hex()}" for key in parsed.explicit_hash_key_table]
    for record in parsed.records:
        ehk = record.explicit_hash_key_index if record.HasField("explicit_hash_key_index") else None
        out.append(_record(record.partition_key_index, ehk, record.data))
    return " ".join(out)


def _record(pk: int, ehk: int | None, data: bytes) -> str:
    indices = [reference.java_int(pk), "-" if ehk is None else reference.java_int(ehk)]
    return f"r{indices[0]},{indices[1]},{data.hex()}"


def theirs(messages: list[bytes]) -> list[str]:
    """What protobuf-java reads. Raises CalledProcessError without a JDK."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    wanted = [*jars.glob("spark-connect_*.jar"), *jars.glob("guava-*.jar"), *jars.glob("failureaccess-*.jar")]
    file = descriptor_pb2.FileDescriptorProto()
    reference.AGGREGATED_RECORD.DESCRIPTOR.file.CopyToProto(file)
    for message in file.message_type:
        for member in message.field:
            if member.name.endswith(("_table", "key", "value")):
                member.type = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    lines = [file.SerializeToString().hex(), *(message.hex() for message in messages)]
    source = Path(__file__).with_name("JavaProtobuf.java")
    done = subprocess.run(
        ["java", "-cp", os.pathsep.join(map(str, wanted)), str(source)],
        input="\n".join(lines) + "\n", text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    seeds = sorted({seed[1:] for seed in corpus.frames() if seed[:1] == corpus.MESSAGE and len(seed) < 3000})
    broken = (corpus.damaged(seeds, chance) for _ in range(args.messages))
    messages = [*seeds, *dict.fromkeys(placed()), *broken]
    answers = theirs(messages)
    assert len(answers) == len(messages)
    differences = 0
    for message, answer in zip(messages, answers, strict=True):
        for ours in (library, executable_spec):
            if ours(message) != answer:
                differences += 1
                print(f"{message.hex()}\n  java {answer[:300]}\n  {ours.__name__} {ours(message)[:300]}")
    read = sum(answer != "ERR" for answer in answers)
    print(f"{len(messages)} messages, {read} of them read by protobuf-java, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
