"""What a sound message costs, by how it is written: CPU time, as a ratio to a plain message of its size.

    python -m tests.benchmarks.variants [USER_RECORDS ...]     default: 1 10 100 400

For each way to open Kinesis records the dearest variant of `tests.test_cost`; both are measured in turns, the
least of eleven.
"""

from __future__ import annotations

import sys
import time

from tests.test_cost import VARIANTS, WAYS, Stream, plain


def ratio_to_plain(way: str, variant: str, user_records: int) -> float:
    message = VARIANTS[variant](user_records)
    count = max(4, 400 // user_records)
    streams = Stream(message, count), Stream(plain(user_records, len(message)), count)
    least = [float("inf")] * 2
    for _ in range(11):
        for index, stream in enumerate(streams):
            begun = time.process_time()
            for _ in range(3):
                WAYS[way](stream)
            least[index] = min(least[index], time.process_time() - begun)
    return least[0] / least[1]


if __name__ == "__main__":
    for user_records in map(int, sys.argv[1:] or ("1", "10", "100", "400")):
        for way in WAYS:
            ratio, variant = max(
                (ratio_to_plain(way, variant, user_records), variant) for variant in VARIANTS
            )
            print(f"{user_records:4} user records  {way:20}  {ratio:4.1f}  {variant}", flush=True)
