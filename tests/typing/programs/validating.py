"""A check of a stream in a nightly job."""

from __future__ import annotations

import kpl_codec as kpl
from kpl_codec.aws import fetch_shard_map, kinesis_client
from kpl_codec.validate import Engine, LocalEngine, Validation, read_shard_map, validate, validate_stream


def nightly(output: str) -> bool:
    settings = {"region": "eu-west-1"}
    shard_map = fetch_shard_map(kinesis_client(region="eu-west-1"), "orders")
    engine: Engine = LocalEngine(cores=2)
    result: Validation = validate_stream(
        settings, "orders", shard_map=shard_map, output=output, engine=engine, start="TRIM_HORIZON"
    )
    for finding in result.findings:
        print(finding.kind, finding.severity, finding.shard_id)
    return result.clean


def of_files(paths: list[str]) -> bool:
    shard_map: kpl.ShardMap = read_shard_map("shards.json")
    return validate(paths, shard_map, output="checked", engine=LocalEngine(), user_records=False).clean
