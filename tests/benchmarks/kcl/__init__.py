"""The work of a KCL consumer in Java: a contender.

    python -m tests.benchmarks --contender "kcl=python -m tests.benchmarks.kcl"

It is the KCL's AggregatorUtil where KCL_CLASSPATH, a Java class path, has it and what it needs. Otherwise it
is KclLike.java, of our own making, which does what spec/03-deaggregation.md says of the KCL, with
protobuf-java, as the KCL has it.
Needs a JDK (17 or newer), protoc, and protobuf-java of the same version: apt-get install
default-jdk-headless protobuf-compiler libprotobuf-java.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
#: Where Debian's package puts protobuf-java; PROTOBUF_JAVA names another place.
_JAR = "/usr/share/java/protobuf.jar"


def build(folder: Path, *more: str, beside: str = "") -> str:
    """Compiles into ``folder``, with ``more`` classes that need the class path ``beside``; gives the class
    path. Raises OSError, CalledProcessError."""
    jar = os.environ.get("PROTOBUF_JAVA", _JAR)
    if not Path(jar).exists():
        raise FileNotFoundError(
            f"{jar}: install libprotobuf-java, or name protobuf-java's jar in PROTOBUF_JAVA"
        )
    spec = HERE.parents[2] / "spec"
    subprocess.run(["protoc", f"-I{spec}", f"--java_out={folder}", str(spec / "kpl.proto")], check=True)
    needed = [jar]
    names = ["Opener", "KclLike", "OpenerWorker", *more]
    if own := os.environ.get("KCL_CLASSPATH"):
        needed.append(own)
        names.append("Kcl")
    sources = [*folder.glob("kpl_codec/*.java"), *(HERE / f"{name}.java" for name in names)]
    path = os.pathsep.join([str(folder), *needed])
    compiling = ["javac", "-d", str(folder), "-cp", os.pathsep.join([path, beside])]
    subprocess.run([*compiling, *map(str, sources)], check=True)
    return path
