"""The totals that following keeps between batches: no Spark session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kpl_codec.captures import Location
from kpl_codec.captures.account import Account
from kpl_codec.findings.counters import Tally
from kpl_codec.spark.validate_engine import _Totals, _totals, result_so_far
from kpl_codec.validate.validate_job import OutputError
from tests.validate.test_job import MAP

TALLY = json.loads(Tally().to_bytes())
WHOLE = {"version": 3, "tally": TALLY, "account": {"checked": 0, "sources": {}}, "given": 0}


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
        json.dumps({**WHOLE, "tally": {**TALLY, "of a later version": changes}}),
        json.dumps({**WHOLE, "version": 2}),
        json.dumps({**WHOLE, **{name: value for name, value in changes.items() if name != "version"}})[:cut],
        json.dumps(TALLY),  # as it was before it had a version
        json.dumps({**WHOLE, "tally": {**TALLY, **changes}})[:cut],
    ):
        path.write_text(text)
        try:
            assert isinstance(_totals(Location(path)), _Totals)
            assert text.endswith("}")
        except OutputError as error:
            assert error.code == "other-state"
    path.write_text("{}")
    with pytest.raises(OutputError, match="another folder"):
        result_so_far(str(tmp_path), MAP, "s")


@pytest.mark.requirement("ACC-10")
@pytest.mark.parametrize(
    ("given", "read", "checked"),
    [(5, 5, 5), (6, 5, 5), (5, 5, 4)],
    ids=["whole", "lost-before-reading", "lost-before-checking"],
)
def test_what_following_loses_is_told(given: int, read: int, checked: int) -> None:
    account = Account()
    account.checked = checked
    source = account.of("shardId-000000000000", 1, unit="shard")
    source.records = read
    source.cover(0, 1)
    kinds = [finding.kind for finding in _Totals(Tally(), account, given).findings()]
    assert kinds == ["not-accounted"] * (given != checked)
