"""Writes shards, hash keys, times and numbers for people: short, the same everywhere, safe for a terminal."""

from __future__ import annotations

import errno
from datetime import datetime, timezone

from ..errors import UNSAFE
from ..errors import safe as safe
from ..format.hash_keys import HashKeyRange

#: The number of hash keys there are.
KEY_SPACE = 2**128


def safe_lines(text: object) -> str:
    """`safe` for a text of several lines, which stay lines."""
    return "\n".join(map(safe, str(text).split("\n")))


def safe_json(text: str) -> str:
    """JSON text with the characters of `safe` as escapes: they can only be in strings, whose values stay the
    same."""
    return UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


#: Words for the commonest errors of the operating system; other errors keep the system's words.
_REFUSALS = {
    errno.ENOENT: "no such file or folder",
    errno.EISDIR: "it is a folder, not a file",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EACCES: "you are not permitted to",
    errno.EROFS: "the disk is read-only",
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "your share of the disk is used up",
    errno.EFBIG: "the file is too large for this system",
}


def refusal(error: OSError) -> str:
    """Why the operating system refused a path, in words."""
    return _REFUSALS.get(error.errno or 0) or error.strerror or str(error)


def short_id(shard_id: str) -> str:
    """``shardId-000000000012`` as ``12``; other ids as they are, at most 16 characters."""
    prefix, dash, digits = shard_id.partition("-")
    if prefix == "shardId" and dash and digits.isascii() and digits.isdigit() and len(digits) < 15:
        return str(int(digits))
    return safe(shard_id[:16])


def share(hash_key_range: HashKeyRange) -> str:
    """The part of the hash key space that a range covers: ``25.0%``."""
    percent = 100 * hash_key_range.size / KEY_SPACE
    return f"{percent:.1f}%" if percent >= 0.05 else f"{percent:.0e}%" if percent else "0%"


def number(value: int) -> str:
    return f"{value:,}"


def size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError


def percent(part: float, whole: float) -> str:
    """A share as ``33.3 %``. 0 % only for none, 100 % only for all."""
    if not whole:
        return "0 %"
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.1f} %" if share % 1 else f"{share:.0f} %"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """A length of time: 90 seconds are ``1.5 min``."""
    for unit, name in ((604800, "weeks"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit or seconds == unit:
            return f"{seconds / unit:.1f} {name}".replace(".0 ", " ")
    return f"{seconds:g} s"


def utc(moment: datetime) -> datetime:
    """``moment`` in UTC; one without a time zone is taken for UTC."""
    return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)
