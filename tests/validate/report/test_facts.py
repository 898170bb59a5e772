"""summary.json: the report for machines follows its schema, and says what was counted."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from kpl_codec.findings.counters import finding_facts

from .conftest import EXAMPLES
from .examples import Report, Stream

SCHEMA = json.loads((Path(__file__).parents[3] / "spec" / "summary.schema.json").read_text())


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_follows_its_schema(name: str, reports: dict[str, Report]) -> None:
    facts = json.loads(json.dumps(reports[name][0]))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(facts, SCHEMA, format_checker=jsonschema.FormatChecker())
    assert facts.keys() == SCHEMA["properties"].keys()
    for shard in facts["shards"]:
        assert shard.keys() == SCHEMA["properties"]["shards"]["items"]["properties"].keys()


def test_the_schema_refuses_what_it_should(reports: dict[str, Report]) -> None:
    facts = json.loads(json.dumps(reports["clean"][0]))
    for wrong in ({"summaryVersion": 2}, {"totals": {}}, {"worst": "bad"}, {"clean": "yes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**facts, **wrong}, SCHEMA)


def test_its_numbers_add_up(reports: dict[str, Report]) -> None:
    facts, findings = reports["full"]
    totals, arrivals = facts["totals"], facts["arrivals"]
    assert totals["lostAtKcl"] == sum(shard["dropped"] for shard in facts["shards"]) > 0
    assert arrivals is not None
    assert sum(cell[2] for cell in arrivals["cells"]) == totals["userRecords"]
    assert sum(cell[3] for cell in arrivals["cells"]) == totals["lostAtKcl"]
    assert len(findings) + facts["omitted"]["findings"] == sum(kind["findings"] for kind in facts["kinds"])
    finding = finding_facts(findings[0])
    assert None not in finding.values()
    assert finding["sequenceNumber"] == findings[0].sequence_number


def test_shards_have_times_generations_and_shares(reports: dict[str, Report]) -> None:
    stream = Stream()
    shards = {shard["shardId"]: shard for shard in reports["full"][0]["shards"]}
    merged = shards["shardId-000000000006"]
    assert merged["parents"] == ["shardId-000000000002", "shardId-000000000003"]
    assert (merged["generation"], merged["opened"], merged["closed"]) == (
        1,
        stream.merge_at.isoformat(),
        None,
    )
    assert shards["shardId-000000000001"]["closed"] == stream.split_at.isoformat()
    assert sum(shard["share"] or 0 for shard in shards.values()) == pytest.approx(1)
    assert int(merged["end"]) - int(merged["start"]) + 1 == 1 << 127
