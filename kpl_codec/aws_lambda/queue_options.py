"""Options and counts of a queue's consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, TypedDict

from ..deaggregation.policies import Policy
from ..deaggregation.records import Drop
from .batch import AfterFailure, Poison

if TYPE_CHECKING:
    from ..ledger import Ledger

#: Told after each answer: a name of QUEUE_METRICS, how much was added, and the queue as an attribute.
Observe = Callable[[str, float, Mapping[str, str]], object]


@dataclass
class QueueCounts:
    """What a consumer has done so far.

    ``kinesis_records``: received, each delivery by itself. ``user_records``: handled. ``skipped``: user
    records that ``once`` knew as handled. ``put_aside``: user records, and Kinesis records that cannot be
    opened, that ``on_poison`` took. ``failed``: Kinesis records that come again since something in them
    failed. ``acknowledged``; ``not_acknowledged``: handled, but the service refused, so they come again.
    ``gone``: not begun in time. ``given_back``: not begun when the consumer was stopped.
    """

    kinesis_records: int = 0
    user_records: int = 0
    skipped: int = 0
    put_aside: int = 0
    failed: int = 0
    acknowledged: int = 0
    not_acknowledged: int = 0
    gone: int = 0
    given_back: int = 0


#: The names that ``observe`` is told: all are counters.
QUEUE_METRICS: Final = tuple(field.name for field in fields(QueueCounts))


class QueueOptions(TypedDict, total=False):
    """Options of both consumers.

    * ``batch``: ``handle`` takes a list of at most so many user records of one aggregate (of 16 with
      ``once``); if it fails, all of them have failed;
    * ``after_failure``, ``policy``, ``on_drop``, ``max_decompressed_size``, ``unframe``: as in
      `kpl_codec.aws_lambda.process_user_records`, within each aggregate;
    * ``on_poison``: takes Kinesis records that cannot be opened, and from delivery number ``poison_after`` on
      (5; the queue makes dead letters after 6) the user records that fail; then they are handled one by one.
      If it does not raise, they count as handled, and the rest of their aggregate is not held up;
    * ``visibility``: seconds (30) for which others do not get what was received; extended while it is
      handled. If this process dies, they get it after so long;
    * ``wait``: seconds (9) that a call waits for records, and a consumer that is stopped may take to end;
    * ``limit``: Kinesis records of one answer, at most (10);
    * ``dead_letters``: consume the queue's dead letters instead of its records;
    * ``drain``: return when an answer is empty, instead of waiting on;
    * ``patience``: seconds (60) for which a call that fails is repeated;
    * ``observe``: told what each answer added to the counts;
    * ``ledger``: a `kpl_codec.audit.Ledger`, which notes what was handled before it is acknowledged. What it
      raises ends the consumer.
    """

    batch: int | None
    after_failure: AfterFailure
    policy: Policy
    on_drop: Callable[[Drop], None] | None
    max_decompressed_size: int | None
    unframe: bool
    on_poison: Callable[[Poison], object] | None
    poison_after: int
    visibility: int
    wait: int
    limit: int
    dead_letters: bool
    drain: bool
    patience: float
    observe: Observe | None
    ledger: Ledger | None
