"""What may become of a user record: its result, its attempts, and what is done about each outcome.

A misplaced aggregate is stored, and sent again: a KCL consumer drops the misplaced copy, and so gets the user
records once. After no-answer, count-mismatch and internal nobody knows whether the Kinesis record is stored;
it is sent again, so the stream may hold it twice. Specification: spec/05-producer.md, PRD-10 and PRD-42; 5.5
has the table of outcomes.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ..aws_errors import advice_of
from ..base.values import Value, describe_fields
from ..errors import KplError
from ..format.records import Tag
from ..rendering.labels import plural, safe

Outcome = Literal[
    "delivered", "misplaced", "placement-unknown", "throttled", "internal", "unauthenticated", "not-sent",
    "no-answer", "count-mismatch", "invalid", "refused", "expired", "closed",
]  # fmt: skip
"""What became of a user record, or of one attempt to send it. The table is in spec/05-producer.md, 5.5."""

#: What is done about an outcome.
ACTIONS: Final[dict[Outcome, str]] = {
    "delivered": "succeed",  # stored; its shard's range has all user records
    "misplaced": "send-again",  # stored; some user record is not in the range: the KCL drops all
    "placement-unknown": "await-map",  # stored on a shard whose range is not known yet
    "throttled": "back-off",  # ProvisionedThroughputExceeded, KMSThrottling ...; then sent again
    "internal": "back-off",  # InternalFailure, 5xx, any code that is not known
    "unauthenticated": "back-off",  # signature or token too old, a role not known yet; nothing is stored
    "not-sent": "back-off",  # no connection, no credentials, no region
    "no-answer": "back-off",  # connection broken, timed out, response cut short
    "count-mismatch": "back-off",  # a response with more or fewer entries than records sent
    "invalid": "isolate",  # ValidationException, InvalidArgument of a whole call: its parts go one by one
    "refused": "fail",  # no such stream, access denied, KMS key disabled ...
    "expired": "fail",  # the user record's time to live is over
    "closed": "fail",  # the producer was closed before it could be sent
}

#: How many attempts of a user record are kept.
FIRST_ATTEMPTS, LAST_ATTEMPTS = 3, 7

#: After an attempt with one of these outcomes the record may be on the stream.
MAY_BE_STORED: Final = frozenset(
    ("delivered", "misplaced", "placement-unknown", "internal", "no-answer", "count-mismatch")
)


#: The most characters of what a service said.
MOST_TEXT: Final = 300


def explain_failure(code: str, reason: str | None) -> str:
    """The code, what the service said, and what to do: one line without control characters."""
    advice = advice_of(code)
    said = safe(reason.partition("\n")[0].strip().rstrip("."))[:MOST_TEXT] if reason else ""
    todo = advice.todo if advice.who == "nobody" and not said else advice.text
    return f"{safe(code)[:MOST_TEXT]}: {said or advice.means}; {todo}"


class Entry(NamedTuple):
    """The entry of a PutRecords response for one Kinesis record. ``code``, ``message``: as the service wrote
    them."""

    outcome: Outcome
    shard_id: str | None = None
    sequence_number: str | None = None
    code: str | None = None
    message: str | None = None


class Attempt(Value):
    """One attempt to send a user record. Times are the producer's clock, in seconds. ``code`` and ``message``
    are of the service's or client's error; a message that could repeat data or keys is left out. ``shard_id``
    and ``sequence_number``: where it is stored; ``predicted_shard``: None without a prediction."""

    outcome: Outcome
    started_at: float
    ended_at: float
    predicted_shard: str | None
    shard_id: str | None = None
    sequence_number: str | None = None
    code: str | None = None
    message: str | None = None


class History(NamedTuple):
    """The failed attempts of a user record. ``left_out``: how many attempts are not kept; ``may_be_stored``:
    one of the left out ones may have stored the user record. ``misplaced``: how many attempts were
    misplaced."""

    attempts: tuple[Attempt, ...] = ()
    left_out: int = 0
    may_be_stored: bool = False
    misplaced: int = 0

    def with_attempt(self, attempt: Attempt) -> History:
        attempts, left_out, may_be_stored = (*self.attempts, attempt), self.left_out, self.may_be_stored
        # PRD-42: "Of a user record's attempts at most the first 3 and the last 7 MUST be kept, and the number
        # of the others."
        if len(attempts) > FIRST_ATTEMPTS + LAST_ATTEMPTS:
            left_out += 1
            may_be_stored = may_be_stored or attempts[FIRST_ATTEMPTS].outcome in MAY_BE_STORED
            attempts = attempts[:FIRST_ATTEMPTS] + attempts[FIRST_ATTEMPTS + 1 :]
        misplaced = self.misplaced + (attempt.outcome == "misplaced")
        return History(attempts, left_out, may_be_stored, misplaced)

    @property
    def not_stored(self) -> bool:
        """Whether no attempt can have stored the user record."""
        stored = any(attempt.outcome in MAY_BE_STORED for attempt in self.attempts)
        return not (self.may_be_stored or stored)


#: The history of a user record that was not sent yet, or was stored by its first attempt.
NO_HISTORY: Final = History()


class Delivery(Value):
    """A user record is in the stream. ``attempts``: the first 3 and the last 8, of which the last delivered
    it; ``attempts_left_out`` counts the others."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    attempts: tuple[Attempt, ...]
    attempts_left_out: int = 0


@describe_fields(
    partition_key="The partition key; None if there was neither it nor an explicit hash key.",
    data="The data as it was put.",
    explicit_hash_key="The explicit hash key as decimal text, or None.",
    tags="The tags.",
)
class Put(NamedTuple):
    """The arguments of a ``put``: ``producer.put(*error.user_record)`` puts it again. No data in its repr."""

    partition_key: str | None
    data: bytes
    explicit_hash_key: str | None = None
    tags: tuple[Tag, ...] = ()

    def __repr__(self) -> str:
        return f"<put of {plural(len(self.data), 'byte')}>"


class DeliveryError(KplError):
    """A user record was accepted and not delivered. ``outcome`` says why, ``user_record`` is what was put.

    ``attempts``: the first 3 and the last 7; ``attempts_left_out`` counts the others,
    ``left_out_may_be_stored``: one of those may have stored it. ``code``: the service's error code if that
    ended it, else the outcome. ``stream``: its name. Its text contains
    neither data nor keys.
    """

    code: str = "not-delivered"
    requirement = "PRD-10"
    user_record: Put
    outcome: Outcome
    stream: str | None = None
    attempts: tuple[Attempt, ...] = ()
    attempts_left_out: int = 0
    left_out_may_be_stored: bool = False
    concerns = "The application that put the user record. The error says whether it may be on the stream."
    todo = (
        "Put the `user_record` of the error again if it must not be lost. Where `may_be_stored` is true "
        "its readers may then get a second copy."
    )

    def describe(self) -> str:
        count, stream = plural(len(self.attempts) + self.attempts_left_out, "attempt"), self.stream or "?"
        return (
            f"user record not delivered: {self.outcome} ({self.explanation}) after {count}, stream {stream}"
        )

    @property
    def explanation(self) -> str:
        """`reason`; and what the service said and what to do, if an attempt has failed with that code."""
        for attempt in reversed(self.attempts):
            if attempt.code is not None and attempt.code == self.reason:
                return explain_failure(attempt.code, attempt.message)
        unsent = self.outcome == "expired" and not self.attempts
        return "not sent: the stream took too little in its time to live" if unsent else self.reason

    @property
    def reason(self) -> str:
        """The code; for the outcomes expired and closed the code of the last attempt."""
        last = self.attempts[-1] if self.attempts else None
        if last is None or self.outcome not in ("expired", "closed"):
            return str(self.code)
        return last.code or str(last.outcome)

    @property
    def may_be_stored(self) -> bool:
        """Whether a copy may be in the stream."""
        return self.left_out_may_be_stored or any(
            attempt.outcome in MAY_BE_STORED for attempt in self.attempts
        )
