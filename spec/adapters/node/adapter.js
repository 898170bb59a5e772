// node adapter.js node_modules/aws-kinesis-agg: the decoder that awslabs publishes on npm (spec/09-conformance.md).
"use strict";

const path = require("path");
const readline = require("readline");

const directory = path.resolve(process.argv[2]);
const { deaggregateSync } = require(directory);
const { version } = require(path.join(directory, "package.json"));

function decode(asked) {
  const data = Buffer.from(asked.data, "hex").toString("base64");
  let answer;
  deaggregateSync({ partitionKey: "outer", sequenceNumber: "1", data }, true, (error, records) => {
    if (error) {
      answer = { error: String(error) };
    } else if (records.length === 1 && records[0].subSequenceNumber === undefined) {
      answer = { plain: true };
    } else {
      answer = { user_records: records.map(userRecord) };
    }
  });
  return answer;
}

function userRecord(record) {
  const { partitionKey, explicitPartitionKey, data } = record;
  const row = { partition_key: partitionKey ?? null, data: Buffer.from(data, "base64").toString("hex") };
  return explicitPartitionKey == null ? row : { ...row, explicit_hash_key: explicitPartitionKey };
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const asked = JSON.parse(line);
  let answer = { name: "aws-kinesis-agg", version, ops: ["decode"] };
  try {
    answer = asked.op === "hello" ? answer : decode(asked);
  } catch (error) {
    answer = { error: String(error) };
  }
  console.log(JSON.stringify({ id: asked.id, ...answer }));
});
