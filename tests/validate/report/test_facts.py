"""summary.json: the report for machines follows its schema, and says what was counted."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest

from kpl_codec.findings.counters import finding_facts

from ...every import every
from ...shards.model import BEGIN
from .examples import EXAMPLES, MERGED_AT, SPLIT_AT

SCHEMA = json.loads((Path(__file__).parents[3] / "spec" / "summary.schema.json").read_text())


@every("name", EXAMPLES)
def test_it_follows_its_schema(name: str) -> None:
    facts = json.loads(json.dumps(EXAMPLES[name]()[0]))
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(facts, SCHEMA, format_checker=jsonschema.FormatChecker())
    assert facts.keys() == SCHEMA["properties"].keys()
    for shard in facts["shards"]:
        assert shard.keys() == SCHEMA["properties"]["shards"]["items"]["properties"].keys()


def test_the_schema_refuses_what_it_should() -> None:
    facts = json.loads(json.dumps(EXAMPLES["clean"]()[0]))
    for wrong in ({"summaryVersion": 2}, {"totals": {}}, {"worst": "bad"}, {"clean": "yes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**facts, **wrong}, SCHEMA)


def test_its_numbers_add_up() -> None:
    facts, findings = EXAMPLES["full"]()
    totals, arrivals = facts["totals"], facts["arrivals"]
    assert totals["lostAtKcl"] == sum(shard["dropped"] for shard in facts["shards"]) > 0
    assert arrivals is not None
    assert sum(cell[2] for cell in arrivals["cells"]) == totals["userRecords"]
    assert sum(cell[3] for cell in arrivals["cells"]) == totals["lostAtKcl"]
    assert len(findings) + facts["omitted"]["findings"] == sum(kind["findings"] for kind in facts["kinds"])
    assert sum(shard["share"] or 0 for shard in facts["shards"]) == pytest.approx(1)
    finding = finding_facts(findings[0])
    assert None not in finding.values()
    assert finding["sequenceNumber"] == findings[0].sequence_number


def test_shards_have_their_times_and_parents() -> None:
    facts, _ = EXAMPLES["full"]()
    shards = {shard["shardId"]: shard for shard in facts["shards"]}
    split, merged = shards["shardId-000000000001"], shards["shardId-000000000006"]
    assert split["closed"] == (BEGIN + timedelta(seconds=SPLIT_AT)).isoformat()
    assert merged["parents"] == ["shardId-000000000002", "shardId-000000000003"]
    assert merged["opened"] == (BEGIN + timedelta(seconds=MERGED_AT)).isoformat()
    assert (merged["generation"], merged["closed"]) == (1, None)
    assert int(merged["end"]) - int(merged["start"]) + 1 == 1 << 127
