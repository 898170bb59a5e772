"""The totals that following keeps between batches: no Spark session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kpl_codec.captures import Location
from kpl_codec.findings.counters import Tally
from kpl_codec.spark.validate_engine import _totals, result_so_far
from kpl_codec.validate.validate_job import OutputError
from tests.validate.test_job import MAP

TALLY = json.loads(Tally().to_bytes())


@pytest.mark.requirement("SPK-92")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([*TALLY, "of a later version"]),
        st.sampled_from([None, 5, "5", [], [[]], [5], {}, {"a": 5}, {"a": [{}]}]),
        min_size=1,
        max_size=2,
    ),
    st.integers(0, 10**6),
)
@example({"of a later version": 5}, 10**6)
def test_what_is_not_of_this_version_is_refused(tmp_path: Path, changes: dict[str, object], cut: int) -> None:
    """A traceback is no answer."""
    folder = tmp_path / "totals"
    folder.mkdir(exist_ok=True)
    path = folder / "0.json"
    for text in (
        json.dumps({"version": 2, "tally": {**TALLY, "of a later version": changes}}),
        json.dumps({"version": 1, "tally": TALLY}),
        json.dumps(TALLY),  # as it was before it had a version
        json.dumps({"version": 2, "tally": {**TALLY, **changes}})[:cut],
    ):
        path.write_text(text)
        try:
            assert isinstance(_totals(Location(path)), Tally)
            assert text.endswith("}")
        except OutputError as error:
            assert error.code == "other-state"
    path.write_text("{}")
    with pytest.raises(OutputError, match="another folder"):
        result_so_far(str(tmp_path), MAP, "s")
