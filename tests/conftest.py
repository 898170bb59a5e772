"""A local Kinesis server for every test that asks, a stream, a proxy that can fail; one Spark session."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import botocore.loaders
import botocore.session
import pytest

# Hypothesis asks no other package for strategies: one of them would import trio in every process.
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"

from kpl_codec.testing.faults import FaultProxy
from kpl_codec.testing.local_kinesis import LocalKinesis

from . import examples, java_classes
from .moto_server import moto_server

pytest_plugins = ["kpl_codec.testing.fixtures"]

# Programs that tests start, and tests themselves, are compiled once, whatever is set here: for many short
# programs that takes longer than what they do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's background job ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For the local servers. Processes that tests start see only what was there then.
os.environ.setdefault("AWS_ACCESS_KEY_ID", "local")
os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "local")
os.environ.pop("COLUMNS", None)  # how wide somebody's terminal is; pytest-xdist sets it, too
os.unsetenv("COLUMNS")  # readline, which pytest imports, sets it where os.environ does not have it

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_classes.options())

# No test takes the power away: what waits for the disk would only hold a process up.
os.fsync = lambda _: None

# botocore reads its models once for a process, not for every client: a second of CPU for each ten clients.
_MODELS = botocore.loaders.create_loader()
botocore.session.create_loader = lambda *_: _MODELS

#: Fixtures that take long to start, and what is read once for many tests. Their tests therefore run in one
#: process, before all others: by fixture, how the ids of these tests begin.
TOGETHER = {
    "spark": (
        # This begins a Spark as a user does, and Java keeps the environment that it began with, and so the
        # address of the local server: it comes first. The others have the same session.
        "tests/guides/test_guides.py::test_the_examples_of_docstrings_work[.spark]",
        "tests/ledger/test_logs.py::test_spark",
        "tests/spark/connect/",
        "tests/spark/source/test_checkpoints.py",
        "tests/spark/source/test_datasource.py",
        "tests/spark/test_functions.py",
        "tests/spark/test_workers.py",
        "tests/spark/validate/",
    ),
    "bare": ("tests/aws_lambda/test_runtime.py",),
    "site": ("tests/site/",),
    "the package's code": (
        "tests/test_layers.py",
        "tests/test_docstrings.py",
        "tests/test_surface.py",
        "tests/spec/test_traceability.py",
    ),
    "moto": ("tests/cli/test_s3.py",),
    "browser": ("tests/validate/report/test_page_browser.py",),
}


def pytest_collection_finish() -> None:
    if examples.share() == 1:
        examples.load_modules()


@pytest.fixture(autouse=True)
def _leaves_no_settings() -> Iterator[None]:
    """A test that left a setting of AWS would send later tests to a server that has ended."""
    before = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    yield
    assert before == {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


@pytest.fixture(autouse=True)
def _leaves_no_garbage() -> Iterator[None]:
    """What was imported, and what a test leaves for others, stays: no later test that collects garbage looks
    through it."""
    gc.freeze()
    yield
    gc.collect()


def together(test_id: str) -> str | None:
    """The fixture whose tests this one runs with; None for a test that runs anywhere."""
    return next((name for name, begins in TOGETHER.items() if test_id.startswith(begins)), None)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    return argname if isinstance(val, bytes) else None  # pytest would write the bytes out


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # Spark waits 10 s for a Python worker that it starts, whatever is set: a busy machine takes longer.
        if item.get_closest_marker("spark") and item.config.pluginmanager.hasplugin("rerunfailures"):
            item.add_marker(pytest.mark.flaky(reruns=20, only_rerun="Python worker failed to connect back"))
        for name in TOGETHER.keys() & set(getattr(item, "fixturenames", ())):
            assert together(item.nodeid) == name, f"{item.nodeid} uses {name}: add it to TOGETHER"
    # Then the slow tests, so that none of them begins when the others are done.
    order = [*TOGETHER, "slow", None]
    items.sort(
        key=lambda item: order.index(
            together(item.nodeid) or ("slow" if item.get_closest_marker("slow") else None)
        )
    )


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist, in a user's environment, nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        """Tests that run together are one piece of work; every other test is one by itself."""

        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid) or nodeid

    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """``-n auto``: two more than there are cores, for much of the tests' time is waiting for servers. Each
    process takes six seconds to collect the tests."""
    return (os.cpu_count() or 1) + 2


@pytest.fixture
def stream(kinesis_local: LocalKinesis, stream_name: str) -> Iterator[str]:
    """A stream of two shards."""
    kinesis_local.create_stream(stream_name, shards=2)
    yield stream_name
    kinesis_local.delete_stream(stream_name)


@pytest.fixture
def moto_url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def proxy(kinesis_local: LocalKinesis) -> Iterator[FaultProxy]:
    """In front of the server."""
    with FaultProxy(kinesis_local.endpoint_url, seed=5) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests, with the data source."""
    from kpl_codec.spark import local_session

    few = {"spark.sql.shuffle.partitions": "2"}  # a partition costs more than the few rows of a test
    session = local_session("kpl-codec tests", cores=2, memory="1g", quick_start=True, settings=few)
    if hasattr(session, "dataSource"):  # PySpark 4
        from kpl_codec.spark import KinesisDataSource

        session.dataSource.register(KinesisDataSource)
    yield session
    session.stop()
