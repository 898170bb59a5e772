"""kcl.py's reading against protobuf-java itself, which the KCL uses.

    python -m fuzz.java_protobuf --messages 100000 --seed 1

Needs a JDK (17 or newer, with its compiler) on PATH and pyspark, whose Spark Connect jar carries
protobuf-java under another package name. Messages are those of the vectors, damaged. Prints every
difference; exit code 1 for any.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2

from kpl_codec.deaggregation import kcl
from kpl_codec.errors import MalformedMessage
from kpl_codec.format import wire
from kpl_codec.format.schema import MESSAGE

from . import corpus
from .invariants import frame

PIECES = [
    b"\xff" * 9 + b"\x01",
    b"\x80" * 9 + b"\x02",
    b"\x80\x80\x80\x80\x10",
    b"\xff\xff\xff\xff\x0f",
    b"\x88\x80\x80\x80\x10\x00",
    b"\x8a\x80\x80\x80\x10\x01a",
    b"\xed\xa0\x80",
]
BYTES = [0, 1, 8, 10, 0x0A, 0x12, 0x1A, 0x22, 0x7F, 0x80, 0xED, 0xA0, 0xFF]


def damaged(messages: list[bytes], chance: random.Random) -> bytes:
    """One of ``messages`` with one to three places changed, cut, repeated or filled in."""
    out = bytearray(chance.choice(messages))
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(out):
            out[at] = chance.choice([*BYTES, out[at] ^ 1 << chance.randrange(8)])
        elif kind == 1:
            out[at:at] = bytes([chance.choice([*BYTES, chance.randrange(256)])])
        elif kind == 2:
            del out[at : at + chance.randint(1, 3)]
        elif kind == 3:
            other = chance.choice(messages)
            begin = chance.randrange(len(other) + 1)
            out[at:at] = other[begin : begin + chance.randint(1, 20)]
        else:
            out[at:at] = chance.choice(PIECES)
    return bytes(out)


def ours(message: bytes) -> str:
    """What kcl.py reads, as JavaProtobuf.java writes it."""
    data = frame(message)
    end = len(data) - 16
    try:
        tables = wire.scan(data, 4, end, key=kcl.java_text)
        records = list(wire.records(data, 4, end, lenient=True))
    except MalformedMessage:
        return "ERR"
    if any(kcl._unreadable(record) for record in records):
        return "ERR"
    out = ["OK", *(f"p{key.encode().hex()}" for key in tables.partition_keys if key is not None)]
    out += [f"e{key.encode().hex()}" for key in tables.explicit_hash_keys if key is not None]
    for record in records:
        pk, ehk = record.partition_key_index or 0, record.explicit_hash_key_index
        start, stop = record.data or (0, 0)
        out.append(f"r{as_int(pk)},{'-' if ehk is None else as_int(ehk)},{data[start:stop].hex()}")
    return " ".join(out)


def as_int(index: int) -> int:
    """Cast to a Java int: the low 32 bits, signed."""
    return (index + 2**31) % 2**32 - 2**31


def theirs(messages: list[bytes]) -> list[str]:
    """What protobuf-java reads. Raises CalledProcessError without a JDK."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    wanted = [*jars.glob("spark-connect_*.jar"), *jars.glob("guava-*.jar"), *jars.glob("failureaccess-*.jar")]
    file = descriptor_pb2.FileDescriptorProto()
    MESSAGE.DESCRIPTOR.file.CopyToProto(file)
    for message in file.message_type:
        for field in message.field:
            field.ClearField("default_value")
    lines = [file.SerializeToString().hex(), *(message.hex() for message in messages)]
    source = Path(__file__).with_name("JavaProtobuf.java")
    done = subprocess.run(
        ["java", "-cp", os.pathsep.join(map(str, wanted)), str(source)],
        input="\n".join(lines) + "\n", text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    seeds = sorted({seed[1:] for seed in corpus.frames() if seed[:1] == corpus.MESSAGE and len(seed) < 3000})
    messages = seeds + [damaged(seeds, chance) for _ in range(args.messages)]
    answers = theirs(messages)
    assert len(answers) == len(messages)
    differences = 0
    for message, answer in zip(messages, answers, strict=True):
        if ours(message) != answer:
            differences += 1
            print(f"{message.hex()}\n  java {answer[:300]}\n  ours {ours(message)[:300]}")
    read = sum(answer != "ERR" for answer in answers)
    print(f"{len(messages)} messages, {read} of them read by protobuf-java, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
