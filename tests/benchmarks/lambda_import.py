"""What importing the Lambda path costs: ``python -m tests.benchmarks.lambda_import [runs]`` (31).

Each line starts fresh interpreters, turn by turn with a bare one, so that all see the same machine; the
least of all runs is taken, minus the least of the bare ones. Wall clock and processor time. The claim to
check: kpl_codec.aws_lambda within 15 ms over the runtime client. Modules are compiled beforehand, as in a
layer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kpl_codec

from .child import run

ROOT = str(Path(kpl_codec.__file__).parents[1])
EVENT = """
import kpl_codec as kpl
data = kpl.encode([kpl.UserRecord("a", b"x"), kpl.UserRecord("b", b"y")])
from kpl_codec.adapters import to_lambda
arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
event = to_lambda([kpl.KinesisRecord("a", data, "1", "shardId-000000000000")], stream_arn=arn)
"""
LINES = {
    "bare Python": "pass",
    "kpl_codec.aws_lambda": "import kpl_codec.aws_lambda",
    "  and a first event handled": "import kpl_codec.aws_lambda" + EVENT
    + "assert not kpl_codec.aws_lambda.process_user_records(event, print)['batchItemFailures']",
    "the runtime client": "import awslambdaric.bootstrap",
    "both, kpl_codec.aws_lambda after it": "import awslambdaric.bootstrap, kpl_codec.aws_lambda",
    "aws_kinesis_agg.deaggregator": "import aws_kinesis_agg.deaggregator",
    "aws_lambda_powertools batch": "import aws_lambda_powertools.utilities.batch",
}  # fmt: skip


def once(code: str) -> tuple[float, float]:
    """Milliseconds of one interpreter: wall clock, processor."""
    path = f"import sys; sys.path.insert(0, {ROOT!r})\n"
    child = run([sys.executable, "-I", "-c", path + code])
    assert child.status == 0
    return child.seconds * 1000, child.cpu * 1000


def measure(runs: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of wall clock and of the processor, by line; those of bare Python, else over it."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in LINES}
    for _ in range(runs):
        for name, code in LINES.items():
            found[name].append(once(code))
    least = {name: (min(t[0] for t in times), min(t[1] for t in times)) for name, times in found.items()}
    bare = least.pop("bare Python")
    return {"bare Python": bare} | {
        name: (wall - bare[0], cpu - bare[1]) for name, (wall, cpu) in least.items()
    }


def main(runs: int) -> dict[str, tuple[float, float]]:
    print(f"{'':38} {'wall':>9} {'processor':>10}   over bare Python, least of {runs} runs")
    found = measure(runs)
    for name, (wall, cpu) in found.items():
        print(f"{name:38} {wall:6.1f} ms {cpu:7.1f} ms")
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 31)
