"""Options of the consumers of a queue, and what they count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, TypedDict

from ..aws_lambda.batch import AfterFailure, Poison
from ..deaggregation.deaggregated_record import Drop
from ..deaggregation.policy_rules import Policy

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..schema_registry import Unframe

#: Called after each response with a name of QUEUE_METRICS, the amount to add, and the queue's ARN.
Observe = Callable[[str, float, Mapping[str, str]], object]


@dataclass
class QueueCounts:
    """What a consumer has done so far.

    ``kinesis_records``: records received; each delivery counts. ``user_records``: user records handled.
    ``skipped``: user records that ``once`` left out, because they were handled before. ``put_aside``: what
    ``on_poison`` took: user records, and Kinesis records that cannot be opened. ``failed``: Kinesis records
    that are delivered again, because something in them failed. ``acknowledged``. ``not_acknowledged``:
    records that were handled, but whose acknowledgement the service refused; they are delivered again.
    ``gone``: records whose visibility ended before they were begun. ``given_back``: records not begun when
    the consumer was stopped.
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


#: The names that ``observe`` is called with. All are counters.
QUEUE_METRICS: Final = tuple(field.name for field in fields(QueueCounts))


class QueueOptions(TypedDict, total=False):
    """Options of the threaded and of the asyncio consumer.

    * ``batch``: ``handle`` gets a list of at most so many user records of one aggregate (with ``once``: of
      one). If it fails, all of them have failed;
    * ``after_failure``, ``policy``, ``on_drop``, ``max_decompressed_size``, ``unframe``: as in
      `kpl_codec.aws_lambda.process_user_records`, within each aggregate;
    * ``on_poison``: gets Kinesis records that cannot be opened and, from delivery number ``poison_after`` on
      (default 5; the queue makes a record a dead letter after 6), user records that fail, which are then
      handled one by one. If it does not raise, they count as handled;
    * ``visibility``: seconds (30) for which other consumers do not get a record that was received. It is
      extended while the record is handled; if this process dies, they get the record after so long;
    * ``wait``: seconds (9) that a call waits for records, and that a stopped consumer may take to end;
    * ``dead_letters``: consume the queue's dead letters instead of its records;
    * ``drain``: return when a response is empty;
    * ``observe``: called after each response with what it added to the counts;
    * ``ledger``: a `kpl_codec.audit.Ledger`, which records what was handled before it is acknowledged. An
      error of the ledger ends the consumer.
    """

    batch: int | None
    after_failure: AfterFailure
    policy: Policy
    on_drop: Callable[[Drop], None] | None
    max_decompressed_size: int | None
    unframe: Unframe
    on_poison: Callable[[Poison], object] | None
    poison_after: int
    visibility: int
    wait: int
    dead_letters: bool
    drain: bool
    observe: Observe | None
    ledger: Ledger | None
