"""summary.json: the report for machines follows its schema, and says what the summary says."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from kpl_codec.findings.counters import finding_facts
from kpl_codec.validate.report.model import Report
from kpl_codec.validate.report.summary import report_facts

from .conftest import EXAMPLES

SCHEMA = json.loads((Path(__file__).parents[3] / "spec" / "summary.schema.json").read_text())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "large")) for name in EXAMPLES]
)
def test_it_follows_its_schema(name: str, reports: dict[str, Report]) -> None:
    facts = json.loads(json.dumps(report_facts(reports[name])))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(facts, SCHEMA, format_checker=jsonschema.FormatChecker())
    assert facts.keys() == SCHEMA["properties"].keys()
    for shard in facts["shards"]:
        assert shard.keys() == SCHEMA["properties"]["shards"]["items"]["properties"].keys()


def test_the_schema_refuses_what_it_should(reports: dict[str, Report]) -> None:
    facts = report_facts(reports["clean"])
    for wrong in ({"summaryVersion": 2}, {"totals": {}}, {"worst": "bad"}, {"clean": "yes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**facts, **wrong}, SCHEMA)


def test_it_has_the_numbers_of_the_report(reports: dict[str, Report]) -> None:
    report = reports["full"]
    facts = report_facts(report)
    assert facts["totals"]["lostAtKcl"] == report.totals.lost_at_kcl > 0
    assert {kind["name"]: kind["findings"] for kind in facts["kinds"]} == {
        count.kind.name: count.findings for count in report.kinds
    }
    assert facts["shards"][0]["end"] == str(report.shards[0].end)
    finding = finding_facts(report.findings[0])
    assert None not in finding.values()
    assert finding["sequenceNumber"] == report.findings[0].sequence_number
