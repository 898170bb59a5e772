"""``RecordAggregator`` and ``AggRecord``. Like the originals, they are not thread-safe.

Neither knows shards: a KCL consumer drops an aggregate whose user records belong to several. Use
`kpl_codec.producer.Producer`, which does, also after a reshard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...errors import EncodeError
from ...format.codec import AggregatedRecordBuilder
from ...format.limits import FRAME_OVERHEAD, LARGEST_MAX_RECORD_SIZE
from ...format.records import UserRecord, check
from . import MAX_BYTES_PER_RECORD

Text = str | bytes
Data = str | bytes | bytearray | memoryview
Callback = Callable[["AggRecord"], object]


class AggRecord:
    """One aggregated record under construction, of at most ``max_size`` bytes of data and partition key."""

    def __init__(self, max_size: int = MAX_BYTES_PER_RECORD) -> None:
        self.max_size = max_size
        self._builder = AggregatedRecordBuilder()
        self._first: UserRecord | None = None

    def get_num_user_records(self) -> int:
        return len(self._builder)

    def get_size_bytes(self) -> int:
        # CMP-8: "The size claimed MUST be the size written."
        return self._builder.size or FRAME_OVERHEAD

    def get_contents(self) -> tuple[str, str | None, bytes]:
        """Partition key, explicit hash key and data for PutRecord: the keys of the first user record.

        Raises EncodeError (a ValueError) if there is no user record.
        """
        # CMP-14: "An aggregated record without user records MUST NOT be given out."
        data = self._builder.build()
        assert self._first is not None
        return self._first.partition_key, self._first.explicit_hash_key, data

    def get_partition_key(self) -> str | None:
        return self._first.partition_key if self._first is not None else None

    def get_explicit_hash_key(self) -> str | None:
        return self._first.explicit_hash_key if self._first is not None else None

    def clear(self) -> None:
        self._builder.clear()
        self._first = None

    def add_user_record(self, partition_key: Text, data: Data, explicit_hash_key: Text | None = None) -> bool:
        """Whether the user record was added; if not, it did not fit, and nothing has changed.

        Texts are encoded as UTF-8. Raises EncodeError (a ValueError) for a user record that must not be
        written, AggregateFull (an EncodeError) for one that fits into no aggregated record of this size.
        """
        explicit = None if explicit_hash_key is None else _text(explicit_hash_key)
        record = UserRecord(_text(partition_key), _bytes(data), explicit)
        # CMP-11: "A user record that Kinesis refuses MUST be refused when it is added."
        check(record)
        outer = self._first or record
        # CMP-10: "The partition key MUST count towards the largest size, as the service counts it."
        room = self.max_size - len(outer.partition_key.encode())
        if self._builder.size_with(record) > room:
            alone = AggregatedRecordBuilder(self.max_size - len(record.partition_key.encode()))
            # CMP-9: "A user record that fits into no aggregated record MUST be refused with an error;
            # one that fits into the next MUST be held in it."
            alone.add(record)
            return False
        self._builder.add(record)
        self._first = outer
        return True


class RecordAggregator:
    """Packs user records into aggregated records of at most ``max_size`` bytes, partition key included."""

    def __init__(self, max_size: int = MAX_BYTES_PER_RECORD) -> None:
        # CMP-16: "The largest size may be up to 10 MiB."
        if max_size > LARGEST_MAX_RECORD_SIZE:
            raise ValueError(f"Invalid max_size {max_size}, the service takes {LARGEST_MAX_RECORD_SIZE}")
        self.max_size = max_size
        self.current_record = AggRecord(max_size)
        self.callbacks: list[tuple[Callback, bool]] = []

    def on_record_complete(self, callback: Callback, execute_on_new_thread: bool = True) -> None:
        """Have ``callback`` called with every AggRecord that got full, on a thread of its own or on the
        calling one."""
        if all(other != callback for other, _ in self.callbacks):
            self.callbacks.append((callback, execute_on_new_thread))

    def get_num_user_records(self) -> int:
        return self.current_record.get_num_user_records()

    def get_size_bytes(self) -> int:
        return self.current_record.get_size_bytes()

    def clear_record(self) -> None:
        self.current_record = AggRecord(self.max_size)

    def clear_callbacks(self) -> None:
        self.callbacks.clear()

    def clear_and_get(self) -> AggRecord | None:
        """The current aggregated record, however full, and start afresh; None if it is empty."""
        if not self.get_num_user_records():
            return None
        finished = self.current_record
        self.clear_record()
        return finished

    def add_user_record(
        self, partition_key: Text, data: Data, explicit_hash_key: Text | None = None
    ) -> AggRecord | None:
        """Add a user record. If it does not fit into the current AggRecord, returns that one, else None.

        Raises EncodeError (a ValueError) as `AggRecord.add_user_record`; nothing has changed then. What a
        callback on the calling thread raises comes after all were called; the user record was added.
        """
        if self.current_record.add_user_record(partition_key, data, explicit_hash_key):
            return None
        finished = self.clear_and_get()
        self.current_record.add_user_record(partition_key, data, explicit_hash_key)
        assert finished is not None
        # CMP-13: "A callback MUST be called once for a full record, however often it was registered, and
        # whatever another one raises."
        raised: BaseException | None = None
        for callback, execute_on_new_thread in list(self.callbacks):
            try:
                if execute_on_new_thread:
                    threading.Thread(target=callback, args=(finished,)).start()
                else:
                    callback(finished)
            except BaseException as error:  # noqa: BLE001 - it is raised when all have been called
                raised = raised or error
        if raised is not None:
            raise raised
        return finished


def _text(value: Text) -> str:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EncodeError(code="partition-key-utf-8", field="partition_key") from None


def _bytes(value: Data) -> bytes:
    # CMP-12: "Data MUST be taken as str, bytes, bytearray or memoryview, and refused as anything else."
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise EncodeError(code="data-type", field="data")
    return bytes(value)
