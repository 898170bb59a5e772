"""The tests that aws_kinesis_agg itself comes with, run on ours.

None of them is copied here: `git clone https://github.com/awslabs/kinesis-aggregation FOLDER`, then
`KINESIS_AGGREGATION=FOLDER python -m pytest tests/compat`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Which of them fail, and the line of the table in spec/06-lambda.md that says why.
DIFFERENT = {"test_invalid_max_size": "CMP-16"}
#: Runs them with our modules under the names of the originals, and prints those that fail, and how many ran.
RUN = """
import sys, unittest
from kpl_codec.compat import aws_kinesis_agg as ours
from kpl_codec.compat.aws_kinesis_agg import aggregator, deaggregator
sys.modules["aws_kinesis_agg"] = ours
sys.modules |= {"aws_kinesis_agg.aggregator": aggregator, "aws_kinesis_agg.deaggregator": deaggregator}
result = unittest.TextTestRunner(sys.stderr).run(unittest.defaultTestLoader.discover(sys.argv[1]))
print(*(test.id().rpartition(".")[2] for test, _ in result.failures + result.errors), result.testsRun)
"""


@pytest.mark.skipif("KINESIS_AGGREGATION" not in os.environ, reason="the docstring says how to fetch them")
def test_they_pass_on_ours_but_for_the_differences_that_are_listed() -> None:
    folder = f"{os.environ['KINESIS_AGGREGATION']}/python/test"
    ran = subprocess.run([sys.executable, "-c", RUN, folder], capture_output=True, text=True, check=True)
    *failed, count = ran.stdout.split()
    assert set(failed) == set(DIFFERENT), ran.stderr
    assert int(count) == 13
