"""Names the likely writer of an aggregated record, from its bytes and its outer partition key: the first row
of the table `SIGNS` that fits decides. No sign needs the outer explicit hash key, which no call that reads
returns. Specification: spec/12-implementations.md, FPR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from string import ascii_letters, digits
from typing import Any, Final, Literal, NamedTuple

from ..errors import MalformedMessage
from ..format import wire
from ..format.codec import is_aggregated
from ..format.frame import disguise_of
from ..format.hash_keys import partition_key_hash
from ..format.limits import DIGEST_SIZE, MAGIC
from ..format.message import parse
from .deaggregated_record import entry_of

Certainty = Literal["certain", "likely", "unknown"]

#: How many user records of an aggregate, and how many bytes of each one's data, are searched for the
#: partition keys of its other user records.
MAX_USER_RECORDS: Final = 16
MAX_BYTES: Final = 4096
#: Characters of the shortest key that is searched for: shorter ones occur in data by chance.
SHORTEST_KEY: Final = 4
#: How many keys must be in the data of other user records.
FEWEST_MOVED: Final = 3


class Tables(NamedTuple):
    """The parts of an aggregated record that differ between writers: the magic, the outer partition key
    (None: unknown), the key tables (None: an entry that is no key), and each user record's indices and data.
    If the message cannot be read, only the magic and the outer key."""

    magic: bytes
    outer_key: str | None
    partition_keys: Sequence[str | None] = ()
    explicit_hash_keys: Sequence[str | None] = ()
    partition_key_indices: Sequence[int | None] = ()
    explicit_hash_key_indices: Sequence[int | None] = ()
    data: Sequence[bytes] = ()

    @property
    def first_key(self) -> str | None:
        return entry_of(self.partition_keys, 0)

    @property
    def each_its_own(self) -> bool:
        """Whether every user record has its own entry in the table of partition keys."""
        indices = self.partition_key_indices
        return len(indices) == len(self.partition_keys) and all(n == i for n, i in enumerate(indices))

    @property
    def repeats(self) -> bool:
        """Whether a table holds a key twice."""
        tables = self.partition_keys, self.explicit_hash_keys
        return any(len(set(table)) < len(table) for table in tables)

    @property
    def only_key(self) -> str | None:
        """The outer key, if it is the key of every user record, too."""
        alone = len(self.partition_keys) == 1 and not self.explicit_hash_keys
        return self.outer_key if alone and self.first_key == self.outer_key else None


class Sign(NamedTuple):
    """A property of an aggregate by which its ``writers`` are known, because no other known writer has it.
    ``swaps``: the field that these writers swap between user records, if they do. `str` gives how sure the
    sign is, the writers, and the description."""

    name: str
    certainty: Certainty
    writers: tuple[str, ...]
    description: str
    matches: Callable[[Tables], bool]
    swaps: Literal["partition_key", "explicit_hash_key"] | None = None

    def __str__(self) -> str:
        others = " or others" if self.certainty == "unknown" else ""
        return f"{self.certainty}: {' or '.join(self.writers)}{others} ({self.description})"


def _unused_blanks(tables: Tables) -> bool:
    return (
        tables.partition_keys[:1] == [" "]
        and tables.explicit_hash_keys[:1] == [None]
        and 0 not in tables.partition_key_indices
        and 0 not in tables.explicit_hash_key_indices
    )


def _unused_a(tables: Tables) -> bool:
    return (
        len(tables.partition_keys) == 2
        and tables.partition_keys[0] == "a"
        and not tables.explicit_hash_keys
        and tables.outer_key in (None, tables.partition_keys[1])
        and all(index == 1 for index in tables.partition_key_indices)
    )


def _unused_zeros(tables: Tables) -> bool:
    return (
        tables.each_its_own
        and len(tables.explicit_hash_keys) == len(tables.partition_keys)
        and set(tables.explicit_hash_keys) == {"0"}
        and not any(index is not None for index in tables.explicit_hash_key_indices)
    )


def _index_of_record(tables: Tables) -> bool:
    """Whether each explicit hash key has the index of its user record in the table, unlike in a table in the
    order of first use."""
    used = [(n, index) for n, index in enumerate(tables.explicit_hash_key_indices) if index is not None]
    return (
        tables.each_its_own
        and len(used) == len(tables.explicit_hash_keys) > 0
        and all(n == index for n, index in used)
        and (tables.repeats or used[-1][1] >= len(used))
    )


def _own_hash(tables: Tables) -> bool:
    """Whether all examined user records have an explicit hash key, at least one of them the MD5 of its
    partition key."""
    indices = zip(tables.partition_key_indices, tables.explicit_hash_key_indices, strict=True)
    keys = [
        (entry_of(tables.partition_keys, pk), entry_of(tables.explicit_hash_keys, ehk))
        for pk, ehk in islice(indices, MAX_USER_RECORDS)
    ]
    return all(ehk is not None for _, ehk in keys) and any(
        pk is not None and ehk == str(partition_key_hash(pk)) for pk, ehk in keys
    )


def _keys_of_others(tables: Tables) -> bool:
    """Whether the data of user records contains the keys of other user records more often than their own."""
    long = ((n, key) for n, key in enumerate(tables.partition_keys) if key and len(key) >= SHORTEST_KEY)
    keys = [(index, key.encode()) for index, key in islice(long, MAX_USER_RECORDS)]
    if len(keys) < FEWEST_MOVED:
        return False
    moved: dict[int | None, int] = {}
    own: set[int | None] = set()
    for index, data in islice(zip(tables.partition_key_indices, tables.data, strict=True), MAX_USER_RECORDS):
        start = data[:MAX_BYTES]
        named = [other for other, key in keys if key in start]
        if index in named:
            own.add(index)
        elif len(named) == 1 and moved.setdefault(index, named[0]) != named[0]:
            return False
    return FEWEST_MOVED <= len(moved) == len(set(moved.values())) and len(moved) > len(own)


def _random(tables: Tables, characters: str, *kinds: Callable[[str], bool]) -> bool:
    """Whether the outer key is the key of all user records, and has eight of these characters, some of each
    kind."""
    key = tables.only_key or ""
    return len(key) == 8 and set(key) <= {*characters} and all(any(map(is_, key)) for is_ in kinds)


def _canonical(tables: Tables) -> bool:
    """Whether the tables hold exactly the used keys, in the order of first use, as the KPL writes them."""
    for table, indices in (
        (tables.partition_keys, tables.partition_key_indices),
        (tables.explicit_hash_keys, tables.explicit_hash_key_indices),
    ):
        used = list(dict.fromkeys(index for index in indices if index is not None))
        if used != list(range(len(table))):
            return False
    return not tables.repeats


#: Writers of the KPL's bytes whose outer key is the first user record's key.
_FIRST_KEY = (
    "aws_kinesis_agg", "aiokpl", "npm's aws-kinesis-agg", "kinesis-tailf", "ex_kpl", "substation",
    "hawknewton/kinesis-aggregation", "kinesis4cats", "fluent-bit's Go plugin",
    "awslabs' Java RecordAggregator",
)  # fmt: skip
#: Writers that give one key to all user records.
_ONE_KEY = ("a8m/kinesis-producer", "Vector's fork", "kinesis-producer-go")

# FPR-1: "A sign MUST be called certain only if no other known writer leaves it and the KPL never writes such
# bytes."
# FPR-2: "A sign MUST name every known writer that leaves it."
SIGNS: Final = (
    Sign("foreign-magic", "certain", ("erlmld",), "magic 00 89 9A C2, or 01 if compressed",
         lambda t: t.magic[0] in (0, 1)),
    Sign("deflated", "certain", ("ex_kpl",), "magic F4 89 9A C2", lambda t: t.magic[0] == 0xF4),
    Sign("unused-blanks", "certain", ("KPLNET",), "both key tables begin with an unused blank",
         _unused_blanks),
    Sign("unused-a", "certain", ("a Ruby plugin of Fluentd",), 'an unused key "a" before the only one',
         _unused_a),
    Sign("unused-zeros", "certain", ("zio-kinesis",), 'an unused explicit hash key "0" for each user record',
         _unused_zeros),
    Sign("index-of-record", "certain", ("hawknewton/kinesis-aggregation",),
         "explicit hash keys are indexed by user record, as if their table had one for each",
         _index_of_record, "explicit_hash_key"),
    Sign("keys-of-others", "likely", ("fluent-bit's Go plugin", "npm's aws-kinesis-agg"),
         "the data names keys of other user records", _keys_of_others, "partition_key"),
    Sign("own-entries", "likely", ("substation", "hawknewton/kinesis-aggregation"),
         "a key table with an entry for each user record, repeated keys too",
         lambda t: t.each_its_own and t.repeats and not t.explicit_hash_keys),
    Sign("own-hash-of-one-key", "likely", ("kinesis4cats", "awslabs' Java RecordAggregator"),
         "one partition key, and explicit hash keys that are its MD5 or given",
         lambda t: len(t.partition_keys) == 1 < len(t.explicit_hash_keys) and _own_hash(t),
         "explicit_hash_key"),
    Sign("own-hash", "likely", ("awslabs' Java RecordAggregator", "kinesis4cats"),
         "every explicit hash key is the MD5 of the partition key, or given", _own_hash),
    Sign("random-hex", "likely", ("kinesis-producer-go",), "one key of eight hexadecimal digits for all",
         lambda t: _random(t, "0123456789abcdef", str.isalpha, str.isdigit)),
    Sign("random-letters", "likely", ("fluent-bit's Go plugin",), "one key of eight random letters for all",
         lambda t: _random(t, ascii_letters + digits, str.islower, str.isupper, str.isdigit)),
    Sign("outer-a", "likely", ("the KPL", "kpl_codec"), 'the KPL\'s bytes under the key "a"',
         lambda t: t.outer_key == "a" and t.first_key not in ("a", None) and _canonical(t)),
    Sign("first-key-of-all", "unknown", (*_ONE_KEY, *_FIRST_KEY, "the KPL", "kpl_codec"),
         "the KPL's bytes under the only key", lambda t: t.only_key is not None and _canonical(t)),
    Sign("first-key", "unknown", _FIRST_KEY, "the KPL's bytes under the first key",
         lambda t: None is not t.first_key == t.outer_key and _canonical(t)),
)  # fmt: skip

#: The signs of other writers than the KPL that are at least likely; they are the first rows of `SIGNS`.
OTHERS: Final = tuple(sign for sign in SIGNS if sign.certainty != "unknown" and "the KPL" not in sign.writers)
assert SIGNS[: len(OTHERS)] == OTHERS
#: The kinds of writers that a watch names: by a sign in the bytes, else by the outer partition key.
WRITERS: Final[dict[str, str]] = {
    "plain": "a writer that does not aggregate",
    "kpl": 'an aggregator with the outer partition key "a", as the KPL and kpl_codec write it',
    "first-key": "an aggregator with the first user record's key as outer key, such as aws_kinesis_agg",
    "other-key": "an aggregator with an outer partition key of its own",
    "unknown": "an unknown writer",
    **{one.name: f"{' or '.join(one.writers)} ({one.certainty}: {one.description})" for one in OTHERS},
}


def fingerprint(data: bytes, outer_key: str | None = None, signs: Sequence[Sign] = SIGNS) -> Sign | None:
    """The first of ``signs`` in this data of a Kinesis record, put under ``outer_key`` (None: not known).
    None for a plain record, and for a frame whose message is no protobuf."""
    if is_aggregated(data):
        tables = _tables(data, outer_key)
    elif data[1:4] == MAGIC[1:] and disguise_of(data) == "a frame with a foreign magic":
        tables = Tables(data[:4], outer_key)
    else:
        return None
    return next((sign for sign in signs if sign.matches(tables)), None)


def _tables(data: bytes, outer_key: str | None) -> Tables:
    sound = parse(data[len(MAGIC) : -DIGEST_SIZE])
    if sound is not None:
        explicit = sound.explicit_hash_key_indices
        return Tables(
            MAGIC,
            outer_key,
            list(sound.partition_key_table),
            [text or None for text in sound.explicit_hash_key_table],
            sound.partition_key_indices,
            [None] * len(sound) if explicit is None else [None if n < 0 else n for n in explicit],
            sound.data,
        )
    try:
        message = wire.Message(data)
    except MalformedMessage:
        return Tables(MAGIC, outer_key)
    rows: list[tuple[Any, ...]] = [
        (user.partition_key_index, user.explicit_hash_key_index, user.data or b"")
        for user in message.records()  # a WireRecord is not kept: it takes much memory
    ]
    tables = message.partition_keys, message.explicit_hash_keys
    return Tables(MAGIC, outer_key, *((*tables, *zip(*rows, strict=True)) if rows else ()))
