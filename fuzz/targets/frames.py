"""Kinesis records and their frames: the core's decoders, encoders and policies.

An input starts with a byte: even, the rest is a message, and the frame around it is made here (random
bytes never have the right digest); odd, the rest is the data itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import kpl_codec as kpl

from .. import corpus, invariants
from .target import Target, repeated


def _data(given: bytes) -> bytes:
    return given[1:] if given[:1] and given[0] % 2 else invariants.frame(given[1:])


def decode(given: bytes) -> None:
    """User records, or exactly one typed error; every quick decoder agrees or passes."""
    data = _data(given)
    found = invariants.decode(data)
    invariants.check_quick_decoders(data, found)
    invariants.check_policies(data, found)


def differential(given: bytes) -> None:
    """Every decoder there is, the executable spec and protobuf's own runtime agree."""
    invariants.check_frame(_data(given))


_KEY = corpus.MESSAGE + b"\x0a\x01a"
_RECORD = b"\x1a\x04\x08\x00\x1a\x00"
#: Large frames that cost a careless decoder far more than they have bytes.
GROWN: dict[str, Callable[[int], bytes]] = {
    "tiny user records": repeated(_RECORD, head=_KEY),
    "one long key": repeated(_RECORD, head=corpus.MESSAGE + b"\x0a\xe8\x07" + b"k" * 1000),
    "keys alone": repeated(b"\x0a\x00", head=corpus.MESSAGE),
    "broken keys": repeated(b"\x0a\x01\xff", head=corpus.MESSAGE),
    "records without anything": repeated(b"\x1a\x00", head=_KEY),
    "groups": repeated(b"\x2b\x2c", head=_KEY),
    "open groups": repeated(b"\x2b", head=_KEY),
    "wrong wire types": repeated(b"\x08\x00", head=_KEY),
    "tags": repeated(b"\x1a\x08\x08\x00\x1a\x00\x22\x02\x0a\x00", head=_KEY),
    "indices beyond": repeated(b"\x1a\x04\x08\x07\x1a\x00", head=_KEY),
    "plain": repeated(b"{", head=corpus.DATA),
}


def read(given: bytes) -> None:
    """What `decode` and `differential` check, once."""
    data = _data(given)
    str(kpl.explain(data))
    with contextlib.suppress(kpl.DecodeError):
        kpl.decode(data)
    for policy in ("report", "kcl"):
        for _ in kpl.deaggregate([kpl.KinesisRecord("a", data, "1")], policy):
            pass


TARGETS = {
    "decode": Target(decode, corpus.frames, GROWN, work=read),
    "differential": Target(differential, corpus.frames, {}),
}
