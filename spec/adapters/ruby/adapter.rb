# ruby adapter.rb: reads a question a line and answers it, in JSON (spec/09-conformance.md).
require "json"
require_relative "decoder"

def answer(asked)
  return { name: "example (Ruby)", version: "1", ops: ["decode"] } if asked["op"] == "hello"
  records = decode([asked["data"]].pack("H*"))
  return { plain: true } if records.nil?
  rows = records.map do |partition_key, data, explicit_hash_key|
    text = partition_key.dup.force_encoding("UTF-8")
    row = text.valid_encoding? ? { partition_key: text } : { partition_key: nil, partition_key_bytes: text.unpack1("H*") }
    row[:data] = data.unpack1("H*")
    explicit_hash_key ? row.merge(explicit_hash_key: explicit_hash_key) : row
  end
  { user_records: rows }
rescue StandardError => error
  { error: error.message }
end

$stdout.sync = true
$stdin.each_line do |line|
  asked = JSON.parse(line)
  puts JSON.generate({ id: asked["id"] }.merge(answer(asked)))
end
