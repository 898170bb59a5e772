"""Computes the hash key (0 to 2^128 - 1) of a record, and converts hash keys: an ``int`` in Python, decimal
text in AWS's API, 16 bytes big-endian in columns. Only this module converts between these. Specification:
spec/02-hash-keys.md."""

import codecs
import re
from operator import index
from typing import TYPE_CHECKING, NamedTuple

from ..base.arguments import argument_error
from ..base.compiled import md5
from ..base.values import describe_fields
from ..errors import HashKeyError
from .limits import HASH_KEY_BITS, MAX_EXPLICIT_HASH_KEY_LENGTH, MAX_HASH_KEY

if TYPE_CHECKING:
    from typing_extensions import Self

# What Java's BigInteger(String) reads: an optional ASCII sign, then decimal digits of any script up to U+FFFF
# (it reads UTF-16 units).
_BIG_INTEGER = r"[+-]?(?:(?![\U00010000-\U0010FFFF])\d)+\Z"  # compiled at its first use


def partition_key_hash(partition_key: str) -> int:
    """The hash key of a partition key: 0 to 2^128 - 1. Raises HashKeyError for a lone surrogate, which has no
    UTF-8 form."""
    try:
        encoded = partition_key.encode()
    except UnicodeEncodeError:
        raise HashKeyError(reason="the partition key has no UTF-8 form") from None
    except AttributeError:
        raise argument_error("partition_key_hash", "partition_key", partition_key, give="a text") from None
    # KEY-2: "The hash key of a partition key MUST be the MD5 digest of its UTF-8 bytes, read as an
    # unsigned big-endian integer."
    return int.from_bytes(md5(encoded), "big")


def java_integer(text: str) -> int | None:
    """The number that Java's ``new BigInteger(text)`` reads, None where it throws; 2^128 for one of 40 digits
    and more (Python refuses to read thousands of digits)."""
    if len(text) <= 39 and text.isascii() and text.isdigit():
        return int(text)  # most texts are ASCII digits
    if not re.match(_BIG_INTEGER, text):
        return None
    digits = "".join(str(int(digit)) for digit in text.lstrip("+-")).lstrip("0")
    value = int(digits or "0") if len(digits) < 40 else MAX_HASH_KEY + 1
    return -value if text[0] == "-" else value


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    data, bad = error.object, error.start
    # KCL-6: "Bytes of a key that are not UTF-8 become U+FFFD, one for an encoded surrogate, whole or
    # cut, and the hash key is that of the text so made."
    if data[bad] == 0xED and 0xA0 <= int.from_bytes(data[bad + 1 : bad + 2], "big") <= 0xBF:
        whole = 0x80 <= int.from_bytes(data[bad + 2 : bad + 3], "big") <= 0xBF
        return "\ufffd", bad + 3 if whole else bad + 2
    return "\ufffd", error.end


codecs.register_error("kpl_codec.java", _replace)


def java_text(data: bytes) -> str:
    """UTF-8 as Java decodes it: invalid bytes become U+FFFD, an encoded surrogate only one."""
    return data.decode("utf-8", "kpl_codec.java")


def explicit_hash_key_value(explicit_hash_key: str | int) -> int:
    """The number of an explicit hash key, from the text in an aggregated record or from a number. Raises
    HashKeyError if it is not a decimal number, outside 0 to 2^128 - 1, or too long."""
    if isinstance(explicit_hash_key, int) and not isinstance(explicit_hash_key, bool):
        return int(format_hash_key(explicit_hash_key))
    if not isinstance(explicit_hash_key, str):
        give = "decimal text or an int"
        raise argument_error("effective_hash_key", "explicit_hash_key", explicit_hash_key, give=give)
    if len(explicit_hash_key) > MAX_EXPLICIT_HASH_KEY_LENGTH:
        raise HashKeyError(reason=f"{len(explicit_hash_key)} characters")
    # KEY-3: "An explicit hash key MUST be a decimal number from 0 to 2^128 - 1; a decoder MUST read
    # it as Java's BigInteger does: an optional ASCII sign, then decimal digits of any script."
    value = java_integer(explicit_hash_key)
    if value is None:
        raise HashKeyError(reason="not a decimal number")
    if not 0 <= value <= MAX_HASH_KEY:
        raise HashKeyError(reason="outside 0 to 2^128 - 1")
    return value


def effective_hash_key(partition_key: str, explicit_hash_key: str | int | None = None) -> int:
    """The hash key that decides a user record's shard: 0 to 2^128 - 1. Raises HashKeyError for an invalid
    explicit hash key, or a partition key without UTF-8 form.

        >>> import kpl_codec as kpl
        >>> kpl.effective_hash_key("customer-1") == kpl.partition_key_hash("customer-1")
        True
        >>> kpl.effective_hash_key("customer-1", "17") == kpl.parse_hash_key("17")
        True
        >>> kpl.format_hash_key(17), kpl.hash_key_from_bytes(kpl.hash_key_to_bytes(17))
        ('17', 17)
    """
    # KEY-4: "The effective hash key MUST be the explicit hash key where one is present, and the hash
    # key of the partition key where none is."
    if explicit_hash_key is not None:
        return explicit_hash_key_value(explicit_hash_key)
    return partition_key_hash(partition_key)


def is_canonical(text: object, digits: int) -> bool:
    """Whether ``text`` is a number as AWS writes it: at most ``digits`` digits, no sign, no leading zero."""
    if not isinstance(text, str) or len(text) > digits or not (text.isascii() and text.isdigit()):
        return False
    return text == "0" or text[0] != "0"


def parse_hash_key(text: str) -> int:
    """The hash key in a text of AWS's API: canonical decimal, 0 to 2^128 - 1. Raises HashKeyError for
    anything else: signs, leading zeros, spaces, other scripts."""
    # KEY-5: "A hash key in an AWS request or answer MUST match ^(0|([1-9]\d{0,38}))$ and be at most
    # 2^128 - 1; nothing else may be written."
    if not is_canonical(text, 39):
        raise HashKeyError(reason="not a canonical decimal number")
    value = int(text)
    if value > MAX_HASH_KEY:
        raise HashKeyError(reason="above 2^128 - 1")
    return value


def format_hash_key(hash_key: int) -> str:
    """A hash key as decimal text for AWS's API. Raises HashKeyError outside 0 to 2^128 - 1."""
    try:
        fits = 0 <= index(hash_key) <= MAX_HASH_KEY
    except TypeError:
        raise argument_error("format_hash_key", "hash_key", hash_key, give="an int") from None
    if not fits:
        raise HashKeyError(reason="outside 0 to 2^128 - 1")
    return str(index(hash_key))


def hash_key_to_bytes(hash_key: int) -> bytes:
    """A hash key as columns have it: 16 bytes, big-endian, which sort as the numbers do. Raises HashKeyError
    outside 0 to 2^128 - 1."""
    # KEY-6: "In columns a hash key MUST be 16 bytes, big-endian."
    try:
        return hash_key.to_bytes(HASH_KEY_BITS // 8, "big")
    except OverflowError:
        raise HashKeyError(reason="outside 0 to 2^128 - 1") from None
    except AttributeError:
        raise argument_error("hash_key_to_bytes", "hash_key", hash_key, give="an int") from None


def hash_key_from_bytes(data: bytes) -> int:
    """The hash key in 16 bytes, big-endian. Raises HashKeyError for another number of bytes."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise argument_error("hash_key_from_bytes", "data", data, give="16 bytes")
    if len(data) != HASH_KEY_BITS // 8:
        raise HashKeyError(reason=f"{len(data)} bytes instead of 16")
    return int.from_bytes(data, "big")


@describe_fields(
    starting_hash_key="The first hash key of the range.", ending_hash_key="The last hash key of the range."
)
class _Ends(NamedTuple):
    starting_hash_key: int
    ending_hash_key: int


class HashKeyRange(_Ends):
    """Hash keys from ``starting_hash_key`` to ``ending_hash_key``, both inclusive. Raises HashKeyError for
    ends outside 0 to 2^128 - 1 or the wrong way round."""

    # No dataclass: importing `dataclasses` takes a quarter of the import time of a Lambda function
    # (tests/test_layers.py). Nor are annotations texts here: NamedTuple would compile them.
    __slots__ = ()

    def __new__(cls, starting_hash_key: int, ending_hash_key: int) -> "Self":
        # KEY-7: "A hash key range includes both its ends; its start MUST NOT be above its end."
        try:
            fits = 0 <= index(starting_hash_key) <= index(ending_hash_key) <= MAX_HASH_KEY
        except TypeError:
            wrong = (starting_hash_key, ending_hash_key)[hasattr(starting_hash_key, "__index__")]
            name = "ending_hash_key" if wrong is ending_hash_key else "starting_hash_key"
            raise argument_error("HashKeyRange", name, wrong, give="an int") from None
        if not fits:
            raise HashKeyError(reason="a range must run upwards within 0 to 2^128 - 1")
        return super().__new__(cls, index(starting_hash_key), index(ending_hash_key))

    def __contains__(self, hash_key: object) -> bool:
        return isinstance(hash_key, int) and self.starting_hash_key <= hash_key <= self.ending_hash_key

    @property
    def size(self) -> int:
        """How many hash keys the range holds: 1 to 2^128."""
        return self.ending_hash_key - self.starting_hash_key + 1

    def overlaps(self, other: "HashKeyRange") -> bool:
        """Whether any hash key is in both ranges."""
        return (
            self.starting_hash_key <= other.ending_hash_key
            and other.starting_hash_key <= self.ending_hash_key
        )

    def split(self, n: int) -> "list[HashKeyRange]":
        """``n`` ranges one after the other, each of floor(size / n) hash keys; the last also has the
        remainder. CreateStream and UpdateShardCount do the same, but AWS does not promise it. Raises
        HashKeyError unless 1 <= n <= size."""
        if not hasattr(n, "__index__"):
            raise argument_error("HashKeyRange.split", "n", n, give="a number of ranges")
        if not 1 <= n <= self.size:
            raise HashKeyError(reason=f"cannot cut {self.size} hash keys into {n} ranges")
        step = self.size // n
        starts = [self.starting_hash_key + step * i for i in range(n)]
        ends = [start - 1 for start in starts[1:]] + [self.ending_hash_key]
        return list(map(HashKeyRange, starts, ends))


ALL_HASH_KEYS = HashKeyRange(0, MAX_HASH_KEY)
"""The whole hash key space."""
