"""The same machine under other settings, and with an operator who does more."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from kpl_codec.producer import Delivery, Pending, ProducerConfig
from kpl_codec.producer.record_builder import KinesisRecordBuilder, PutRecordsRequest

from .machine import ProducerMachine


class ReshardProofMachine(ProducerMachine):
    """One explicit hash key for all of an aggregate: no split can part it."""

    config = ProducerConfig(
        aggregation_max_size=600, record_ttl_ms=30_000, max_connections=3, reshard_proof=True
    )

    @invariant()
    def nothing_is_ever_misplaced(self) -> None:
        for result in self.results.values():
            assert all(a.outcome != "misplaced" for a in result.attempts)


class StrictOrderMachine(ProducerMachine):
    """Strict order per partition key, with its own claims beside the others."""

    config = ProducerConfig(
        aggregation_max_size=600, record_ttl_ms=30_000, max_connections=3, ordering="partition-key"
    )

    def goes_out(self, kinesis_records: list[KinesisRecordBuilder]) -> None:
        super().goes_out(kinesis_records)
        self.collect()
        for outgoing in kinesis_records:
            beside = {pending.token for pending in outgoing.records}
            for pending in outgoing.records:
                for other in () if pending.keyless else self.accepted.values():
                    same_key = other.record.partition_key == pending.record.partition_key
                    if same_key and not other.keyless and other.number < pending.number:
                        assert other.token in beside or other.token in self.results, "sent too early"

    def teardown(self) -> None:
        super().teardown()
        first_seen: dict[bytes, int] = {}
        for place, data in enumerate(self.stream.in_order()):
            first_seen.setdefault(data, place)
        by_key: dict[str, list[Pending]] = {}
        for data, pending in self.accepted.items():
            if not pending.keyless and not pending.own_hash_key and isinstance(self.results[data], Delivery):
                by_key.setdefault(pending.record.partition_key, []).append(pending)
        for key, pendings in by_key.items():
            pendings.sort(key=lambda pending: pending.number)
            places = [first_seen[pending.token] for pending in pendings]
            assert places == sorted(places), f"user records of key {key!r} out of order"


class StrictOrderExpiryMachine(StrictOrderMachine):
    """Aggregates that wait for each other while one after the other of their user records expires."""

    config = ProducerConfig(
        aggregation_max_size=600,
        record_ttl_ms=1_000,
        record_max_buffered_time_ms=500,
        max_connections=1,
        ordering="partition-key",
    )


class AutoMachine(ProducerMachine):
    """The operator lets the service distribute records, and takes it back: keys count for nothing then."""

    doubles_matter = False  # a record on a shard that is not its own may be there again

    @rule()
    def operator_changes_the_distribution(self) -> None:
        self.healthy = False
        auto = self.stream.distribution == "AUTO"
        self.stream.distribution = "USER_PARTITION_KEY" if auto else "AUTO"


class RecreatedMachine(ProducerMachine):
    """The stream is deleted, and made again under its name, while the producer goes on."""

    doubles_matter = False  # what was stored in a life that is gone may be sent again

    @initialize(hints=st.booleans(), describes=st.booleans())
    def other_streams(self, hints: bool, describes: bool) -> None:
        self.stream.hints, self.stream.describes = hints, describes

    @rule(shards=st.integers(1, 4))
    def operator_makes_the_stream_anew(self, shards: int) -> None:
        under_way = [call for call in self.calls if call[1] is None]
        if not self.stream.hints and not any(isinstance(call[0], PutRecordsRequest) for call in under_way):
            return  # without hints nothing tells of a stream that nobody missed
        self.healthy = False
        self.stream.delete()
        for call in under_way:  # they come while there is none
            self.calls.remove(call)
            self.answer(*call)
        self.stream.create_again(shards)
        self.ask()

    @rule()
    def operator_deletes_the_stream(self) -> None:
        if self.stream.hints:
            self.healthy = False
            self.stream.delete()

    @rule(shards=st.integers(1, 4))
    def operator_makes_the_stream_at_last(self, shards: int) -> None:
        if self.stream.deleted:
            self.stream.create_again(shards)


class ExtremeMachine(ProducerMachine):
    """Settings at the ends of their ranges."""

    config = ProducerConfig(
        aggregation_max_size=600,
        record_ttl_ms=10**14,
        record_max_buffered_time_ms=2**63 - 1,
        rate_limit=2**63 - 1,
        max_connections=256,
    )


class HastyMachine(ProducerMachine):
    """As little time as there may be, and all of it for buffering."""

    config = ProducerConfig(aggregation_max_size=64, record_ttl_ms=100, record_max_buffered_time_ms=100)


class ReshardProofAutoMachine(AutoMachine):
    config = ReshardProofMachine.config


class BucketMachine(ProducerMachine):
    """Other outer partition keys and no retries of throttled records."""

    config = ProducerConfig(
        aggregation_max_size=600,
        record_ttl_ms=1_000,
        max_connections=1,
        outer_key="buckets",
        outer_key_buckets=3,
    )


MACHINES = [
    ProducerMachine,
    ReshardProofMachine,
    StrictOrderMachine,
    StrictOrderExpiryMachine,
    BucketMachine,
    AutoMachine,
    ReshardProofAutoMachine,
    RecreatedMachine,
    ExtremeMachine,
    HastyMachine,
]
