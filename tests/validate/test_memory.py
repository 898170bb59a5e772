"""What a worker process holds at most, whatever a file is like."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kpl_codec.validate.local import WORKER_MEMORY

from .test_job import LOWER, MAP

pytestmark = pytest.mark.requirement("SPK-41")

#: A worker's work on a file of one task; prints its largest resident memory in bytes.
WORK = """
import sys
from kpl_codec.captures import Location, plan
from kpl_codec.validate import read_shard_map
from kpl_codec.validate.task import Job, make_folders, work_folder
path, shards, output = *sys.argv[1:3], Location(sys.argv[3])
make_folders(work_folder(output))
records = Job([plan([path], piece_bytes=1 << 40)], read_shard_map(shards), output).run(0)
# Not ru_maxrss: it begins with that of the process that started us.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(records, int(peak) * 1024)
"""


def row_group(path: Path) -> int:
    """Parquet of one row group of 400 MB."""
    blob, count = random.Random(1).randbytes(1 << 20), 8_000
    data = [blob[500 * (n % 1000) :][:50_000] for n in range(count)]
    columns = {"data": pa.array(data, pa.large_binary()), "sequenceNumber": [str(n) for n in range(count)]}
    pq.write_table(pa.table(columns), path, row_group_size=count, use_dictionary=False)
    return count


def one_value(path: Path) -> int:
    """JSON of one list of 130 MB in one line, of 20 answers."""
    data = base64.b64encode(random.Random(2).randbytes(50_000)).decode()
    with path.open("w") as out:
        for start in range(0, 2_000, 100):
            records = [
                {"SequenceNumber": str(number), "Data": data, "PartitionKey": "k"}
                for number in range(start, start + 100)
            ]
            out.write(("," if start else "[") + json.dumps({"ShardId": LOWER, "Records": records}))
        out.write("]")
    return 2_000


def one_record(path: Path) -> int:
    """JSON of one record of 30 MiB."""
    record = {"SequenceNumber": "1", "Data": "A" * (30 << 20), "PartitionKey": "k"}
    path.write_text(json.dumps({"ShardId": LOWER, "Records": [record]}))
    return 1


@pytest.mark.slow
@pytest.mark.parametrize("make", [row_group, one_value, one_record])
def test_a_worker_stays_within_its_memory(tmp_path: Path, make: Callable[[Path], int]) -> None:
    path = tmp_path / "capture"
    count = make(path)
    (tmp_path / "shards.json").write_text(MAP.to_json())
    given = [str(path), str(tmp_path / "shards.json"), str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", WORK, *given], capture_output=True, text=True, check=True)
    records, peak = map(int, done.stdout.split())
    assert records == count
    assert peak < WORKER_MEMORY
