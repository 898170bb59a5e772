// Adapter for aws-kinesis-agg (npm). The first argument is the directory of the package.
"use strict";

const path = require("path");
const readline = require("readline");

const directory = process.argv[2];
const agg = require(directory);
const version = require(path.join(directory, "package.json")).version;

function userRecord(record) {
  const answer = {
    partition_key: record.partitionKey === undefined ? null : record.partitionKey,
    data: Buffer.from(record.data, "base64").toString("hex"),
  };
  if (record.explicitPartitionKey !== undefined && record.explicitPartitionKey !== null) {
    answer.explicit_hash_key = record.explicitPartitionKey;
  }
  return answer;
}

const operations = {
  decode(request) {
    const kinesisRecord = {
      partitionKey: "outer",
      sequenceNumber: "1",
      data: Buffer.from(request.data, "hex").toString("base64"),
    };
    const records = [];
    let failure = null;
    agg.deaggregate(
      kinesisRecord,
      true,
      (error, record) => (error ? (failure = failure || error) : records.push(record)),
      (error) => (failure = failure || error)
    );
    if (failure) {
      return { error: String(failure), user_records_before: records.length };
    }
    if (records.length === 1 && records[0].subSequenceNumber === undefined) {
      return { plain: true };
    }
    return { user_records: records.map(userRecord) };
  },

  encode(request) {
    if (request.max_size !== undefined) {
      return { unsupported: true };
    }
    const aggregator = new agg.RecordAggregator();
    for (const record of request.user_records) {
      aggregator.addUserRecord({
        partitionKey: record.partition_key,
        explicitHashKey: record.explicit_hash_key,
        data: Buffer.from(record.data, "hex"),
      });
    }
    const encoded = aggregator.build();
    return encoded === undefined ? { error: "nothing" } : { data: encoded.data.toString("hex") };
  },
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  let answer;
  if (request.op === "hello") {
    answer = { version };
  } else {
    try {
      answer = operations[request.op](request);
    } catch (error) {
      answer = { error: String(error).slice(0, 500) };
    }
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
