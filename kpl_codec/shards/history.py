"""Finds from the lineage which shard was open for a record when it was written.

Specification: spec/08-live-shard-map.md, LIN-4, LIN-8, LIN-9.
"""

from __future__ import annotations

from typing import NamedTuple

from .lineage import Lineage
from .placement import Verdict, verdict_of
from .sequence_numbers import parse_sequence_number, sequence_hint
from .shard import Shard


class History(NamedTuple):
    """What the lineage says about one record.

    ``verdict``: against the shard that was open for its hash key when it was written.
    ``shard_then``: that shard, None if it has expired or the record has no sequence number. For a record on a
    shard that never held its key, it is found by the time that the sequence number hints at. ``chain``: every
    known shard that ever held the hash key, oldest first. ``number_in_shard``: whether the shard can have
    given out the sequence number (it is not before the shard's start), None where unknown.
    ``hinted_shard_id``: the shard that the number hints at.
    """

    verdict: Verdict
    shard_then: Shard | None
    chain: tuple[Shard, ...]
    number_in_shard: bool | None
    hinted_shard_id: str | None


def history_of(
    lineage: Lineage,
    hash_key: int | None,
    shard_id: str | None,
    sequence_number: str | None,
    *,
    aggregated: bool,
) -> History:
    """Judge one record against the stream as it was when the record was written.

    ``aggregated``: the record comes from an aggregate, so its explicit hash key, or its absence, is known.
    The verdicts are those of `placement`, with the shard that was open then in place of the one that is now;
    expected where that is not known. On-parent and on-child mean that the record was written to a shard that
    was not open then, or that the sequence number is not the record's.
    Raises HashKeyError, SequenceNumberError.
    """
    number = parse_sequence_number(sequence_number) if sequence_number is not None else None
    # LIN-4: "A hint MUST NOT change a verdict."
    hint = sequence_hint(number) if number is not None else None
    chain = lineage.chain(hash_key) if hash_key is not None else ()
    shard = lineage.get(shard_id) if shard_id is not None else None
    then = None
    if hash_key is not None and number is not None:
        if shard is not None and shard not in chain:
            # The shard never held the key, so its numbers count from another start: only the hinted time can
            # tell.
            then = lineage.shard_at_time(hash_key, hint.time) if hint else None
        else:
            then = lineage.shard_at_sequence_number(hash_key, number)
    start = lineage.starting_number(shard.shard_id) if shard is not None else None
    in_shard = None if start is None or number is None else number >= start

    in_range = hash_key in shard.hash_key_range if shard is not None and hash_key is not None else None
    # LIN-9: "A record in the range of its shard MUST be judged against the shard that was open
    # for its hash key at its own sequence number, so that a record written before a split is
    # expected on the parent."
    verdict = verdict_of(lineage, shard, then, in_range, certain=aggregated)
    return History(verdict, then, chain, in_shard, hint.shard_id if hint else None)
