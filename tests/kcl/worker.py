"""A worker of kcl_rs:

    python -m tests.kcl.worker STREAM WORKER LEDGER TRUTH DIE_AFTER

It appends the name of each user record to TRUTH when it has handled it. After DIE_AFTER of them it kills
itself in the middle of a batch. Every 30 user records it checkpoints at one. It ends when its input does.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import kcl_rs

from kpl_codec.adapters import kinesis_records
from kpl_codec.audit import Ledger
from kpl_codec.kcl import audited

STREAM, WORKER, LEDGER, TRUTH, DIE_AFTER = sys.argv[1:]
truth = os.open(TRUTH, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
user_records_left = int(DIE_AFTER)


class Processor(kcl_rs.RecordProcessorBase):  # type: ignore[misc]
    def initialize(self, kcl_input: Any) -> None:
        self.shard_id = kcl_input.shard_id

    def process_records(self, kcl_input: Any) -> None:
        global user_records_left
        for n, record in enumerate(kinesis_records(kcl_input.records, shard_id=self.shard_id), 1):
            assert record.data
            os.write(
                truth, f"{self.shard_id} {record.sequence_number} {record.sub_sequence_number}\n".encode()
            )
            if n % 30 == 0:
                kcl_input.checkpointer.checkpoint(record.sequence_number, record.sub_sequence_number)
            user_records_left -= 1
            if user_records_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        kcl_input.checkpointer.checkpoint()

    def lease_lost(self, kcl_input: Any) -> None:
        pass

    def shard_ended(self, kcl_input: Any) -> None:
        kcl_input.checkpointer.checkpoint()

    shutdown_requested = shard_ended


def main() -> None:
    scheduler = kcl_rs.Scheduler(
        stream_name=STREAM,
        application_name=STREAM,
        worker_identifier=WORKER,
        record_processor_factory=audited(Processor, stream=STREAM, ledger=Ledger(LEDGER)),
        region="us-east-1",
        initial_position="TRIM_HORIZON",
        retrieval_mode="POLLING",
        idle_time_between_reads_millis=200,
        shard_sync_interval_millis=1000,
    )
    scheduler.start()
    sys.stdin.read()
    scheduler.shutdown()


if __name__ == "__main__":
    main()
