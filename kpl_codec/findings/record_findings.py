"""Finds what is wrong with user records beside the defects of their frame, and with their writer. Each rule
stands here once: `cat`, `inspect` and `watch` call `findings_in`; `validate` chooses rows by columns, and
asks the same rules about these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ..deaggregation.deaggregated_record import DeaggregatedRecord
from ..deaggregation.fingerprints import Sign, fingerprint
from ..format.frame import disguise_of
from ..format.nested import describe_nested, layers_around


class RecordFinding(NamedTuple):
    """What is wrong: a kind of finding, and a sentence."""

    kind: str
    detail: str


def hidden_aggregate(data: bytes, sub_sequence_number: int | None) -> RecordFinding | None:
    """An aggregated record in a user record's data that no consumer opens."""
    disguise = disguise_of(data) if sub_sequence_number is None else None
    if disguise is not None:
        # SPK-45: "Data that is an aggregated record turned into text (base64 of base64, hexadecimal digits,
        # text with lost bytes), or a frame with another magic, MUST be a finding."
        # WCH-38: "A Kinesis record that is an aggregated record turned into text, or has one within, MUST be
        # a finding here, as in a validation."
        sign = fingerprint(data)
        writer = f", written by {' or '.join(sign.writers)}" if sign is not None else ""
        detail = f"an aggregated record as {disguise}{writer}: no consumer opens it"
        return RecordFinding("capture-encoded-frame", detail)
    layers = layers_around(data)
    if layers is None:
        return None
    return RecordFinding("nested-aggregate", describe_nested(layers, sub_sequence_number))


#: A rule about one user record without a defect: what is wrong with its data, if anything is. It is given the
#: sub-sequence number of a user record of an aggregate, None for data that was not aggregated.
UserRecordRule = Callable[[bytes, int | None], RecordFinding | None]
USER_RECORD_RULES: Final[tuple[UserRecordRule, ...]] = (hidden_aggregate,)


def writer_finding(sign: Sign) -> RecordFinding:
    """What is known of the writer with this sign."""
    # FPR-3: "An aggregate whose likely writer is known to swap keys MUST be a finding, `swapped-keys`."
    return RecordFinding("writer" if sign.swaps is None else "swapped-keys", str(sign))


def findings_in(rows: Iterable[DeaggregatedRecord]) -> Iterator[RecordFinding]:
    """What is wrong with user records, as the report policy gives them. The defects that they have are their
    findings; nothing more is looked for there."""
    for row in rows:
        for rule in () if row.defects else USER_RECORD_RULES:
            found = rule(row.data, row.sub_sequence_number if row.aggregated else None)
            if found is not None:
                yield found
