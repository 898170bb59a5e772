"""The possible outcomes of a Kinesis record that was sent, and what is done about each.

    outcome            | seen as                                              | what is done
    -------------------+------------------------------------------------------+---------------------------
    delivered          | stored; its shard's range has all user records       | succeed
    misplaced          | stored; some user record is not: the KCL drops all   | send all again, new map
    placement-unknown  | stored on a shard whose range is not known yet       | wait for a newer map
    throttled          | ProvisionedThroughputExceeded, KMSThrottling ...     | send again after a backoff
    internal           | InternalFailure, 5xx, any code not listed            | send again after a backoff
    not-sent           | no connection, no credentials, no region             | send again after a backoff
    no-answer          | connection broken, timed out, answer cut short       | send again after a backoff
    count-mismatch     | an answer with more or fewer entries than sent       | send again after a backoff
    invalid            | ValidationException, InvalidArgument of a whole call | send its parts one by one
    refused            | no such stream, access denied, KMS key disabled ...  | fail at once
    expired            | the user record's time to live is over               | fail
    closed             | the producer was closed before it could be sent      | fail
    dropped            | the producer was full, and its caller chose to drop  | fail

A misplaced aggregate is stored, and is sent again. A KCL consumer gets its user records once, because it
drops the misplaced copy. After no-answer, count-mismatch and internal it is unknown whether the record is
stored, so it may be there twice.
Specification: spec/05-producer.md, PRD-10 to PRD-24.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ..aws_errors import ErrorKind, error_kind
from ..errors import KplError
from ..format.records import Tag

Outcome = Literal[
    "delivered", "misplaced", "placement-unknown", "throttled", "internal", "not-sent", "no-answer",
    "count-mismatch", "invalid", "refused", "expired", "closed", "dropped",
]  # fmt: skip
"""What became of a user record, or of one attempt to send it; spec/05, PRD-10 to PRD-24, tells them apart."""

#: What is done about an outcome.
ACTIONS: Final[dict[Outcome, str]] = {
    "delivered": "succeed",
    "misplaced": "send-again",
    "placement-unknown": "await-map",
    **dict.fromkeys(("throttled", "internal", "not-sent", "no-answer", "count-mismatch"), "back-off"),
    "invalid": "isolate",
    **dict.fromkeys(("refused", "expired", "closed", "dropped"), "fail"),
}

#: How many attempts of a user record are kept.
FIRST_ATTEMPTS, LAST_ATTEMPTS = 3, 7

#: After these the record may be in the stream.
MAY_BE_STORED: Final = frozenset(
    ("delivered", "misplaced", "placement-unknown", "internal", "no-answer", "count-mismatch")
)

_BY_KIND: Final[dict[ErrorKind, Outcome]] = {
    "throttled": "throttled",
    "other": "internal",
    "not-sent": "not-sent",
    "unconfigured": "not-sent",
    "invalid": "invalid",
    "refused": "refused",
}


def outcome_of(code: str, *, answered: bool = True) -> Outcome:
    """The outcome for an error code of AWS or of the client. ``answered`` False: no answer came."""
    return _BY_KIND[error_kind(code)] if answered else "no-answer"


class Attempt(NamedTuple):
    """One attempt to send a user record. Times are the producer's clock, in seconds. ``code`` and ``message``
    are those of the service's or client's error, without a message that could repeat data or keys.
    ``shard_id`` and ``sequence_number`` are set when the service stored it, ``predicted_shard`` if one was
    predicted.
    """

    outcome: Outcome
    started_at: float
    ended_at: float
    predicted_shard: str | None
    shard_id: str | None = None
    sequence_number: str | None = None
    code: str | None = None
    message: str | None = None


class History(NamedTuple):
    """The attempts of a user record that have failed. ``left_out``: how many are not kept, of which one or
    more ``may_be_stored``. ``misplaced``: how many of all were."""

    attempts: tuple[Attempt, ...] = ()
    left_out: int = 0
    may_be_stored: bool = False
    misplaced: int = 0

    def with_attempt(self, attempt: Attempt) -> History:
        """The history with one more."""
        attempts, left_out, may_be_stored = (*self.attempts, attempt), self.left_out, self.may_be_stored
        # PRD-42: "Of a user record's attempts at most the first 3 and the last 7 MUST be kept, and the number
        # of the others."
        if len(attempts) > FIRST_ATTEMPTS + LAST_ATTEMPTS:
            left_out += 1
            may_be_stored = may_be_stored or attempts[FIRST_ATTEMPTS].outcome in MAY_BE_STORED
            attempts = attempts[:FIRST_ATTEMPTS] + attempts[FIRST_ATTEMPTS + 1 :]
        misplaced = self.misplaced + (attempt.outcome == "misplaced")
        return History(attempts, left_out, may_be_stored, misplaced)


#: That of a user record which was not sent yet, or was stored at once.
NO_HISTORY: Final = History()


class Delivery(NamedTuple):
    """A user record is in the stream. ``attempts``: the last one delivered; of many only the first 3 and the
    last 8 are kept, ``attempts_left_out`` counts the others."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    attempts: tuple[Attempt, ...]
    attempts_left_out: int = 0


class Put(NamedTuple):
    """What a caller gave to ``put``: ``producer.put(*given)`` puts it again. Its text shows nothing of it.

    ``partition_key`` is None where the caller gave neither it nor an explicit hash key, which is a text here.
    """

    partition_key: str | None
    data: bytes
    explicit_hash_key: str | None = None
    tags: tuple[Tag, ...] = ()

    def __repr__(self) -> str:
        return f"<put of {len(self.data)} bytes>"


class DeliveryError(KplError):
    """A user record was accepted and not delivered. ``outcome`` says why, ``user_record`` is what was put.

    ``attempts``: of many only the first 3 and the last 7; ``attempts_left_out`` counts the others, and
    ``left_out_may_be_stored`` says whether one of those may have stored it. ``code`` is the service's error
    code if that ended it, else the outcome. Its text contains neither data nor keys.
    """

    code: str = "not-delivered"
    requirement = "PRD-10"
    user_record: Put
    outcome: Outcome
    attempts: tuple[Attempt, ...] = ()
    attempts_left_out: int = 0
    left_out_may_be_stored: bool = False
    concerns = "The application that put the user record. The error says whether it may be on the stream."
    todo = "Put it again (`user_record`) if it must not be lost and its readers recognise copies."

    def describe(self) -> str:
        count = len(self.attempts) + self.attempts_left_out
        return f"user record not delivered: {self.outcome} ({self.reason}) after {count} attempts"

    @property
    def reason(self) -> str:
        """The code; of one that expired or was given up that of its last attempt."""
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
