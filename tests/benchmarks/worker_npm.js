// aws-kinesis-agg from npm behind the protocol of worker.py. Arguments: its directory, the corpora's.
"use strict";

const crypto = require("crypto");
const fs = require("fs");
const path = require("path");
const readline = require("readline");

const agg = require(process.argv[2]);
const directory = process.argv[3];
let name = null;
let records = [];

// The frames file: for each frame 4 bytes of length, big-endian, then the frame.
function load(corpus) {
  if (name === corpus) return;
  const bytes = fs.readFileSync(path.join(directory, corpus + ".frames"));
  records = [];
  for (let at = 0; at < bytes.length; ) {
    const size = bytes.readUInt32BE(at);
    records.push({
      partitionKey: "outer",
      sequenceNumber: String(records.length),
      data: bytes.subarray(at + 4, at + 4 + size).toString("base64"),
    });
    at += 4 + size;
  }
  name = corpus;
}

function objects() {
  const found = [];
  for (const record of records) {
    agg.deaggregateSync(record, true, (error, made) => {
      if (!error) for (const one of made) found.push(one);
    });
  }
  return found;
}

const END = 2n ** 128n - 1n;
const tasks = {
  objects,
  "objects+placement"() {
    const found = objects();
    for (const record of found) {
      if (record.partitionKey === undefined) continue; // an index out of its table
      const hash =
        record.explicitPartitionKey !== undefined && record.explicitPartitionKey !== null
          ? BigInt(record.explicitPartitionKey)
          : BigInt("0x" + crypto.createHash("md5").update(record.partitionKey).digest("hex"));
      if (hash > END) throw new Error("outside");
    }
    return found;
  },
};

function digest(made) {
  const sink = crypto.createHash("md5");
  for (const record of made) {
    const data = Buffer.from(record.data, "base64");
    const size = Buffer.alloc(4);
    size.writeUInt32BE(data.length);
    const plain = record.subSequenceNumber === undefined;
    sink.update(plain ? "" : record.partitionKey).update("\0").update(size).update(data);
  }
  return sink.digest("hex");
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const asked = JSON.parse(line);
  const task = tasks[asked.task];
  let answer = { unsupported: true };
  if (task) {
    load(asked.corpus);
    const before = process.cpuUsage();
    const made = task();
    const spent = process.cpuUsage(before);
    const compared = asked.check && asked.corpus !== "h"; // they differ on broken frames
    answer = { seconds: (spent.user + spent.system) / 1e6, digest: compared ? digest(made) : null };
  }
  console.log(JSON.stringify(answer));
});
