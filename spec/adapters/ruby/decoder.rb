# A small decoder of aggregated records, as an example: put yours in its place.
require "digest"

class Broken < StandardError; end

MAGIC = "\xF3\x89\x9A\xC2".b

def varint(bytes, at)
  value = shift = 0
  loop do
    byte = bytes.getbyte(at) or raise Broken, "a number is cut"
    value |= (byte & 0x7F) << shift
    at += 1
    break if byte < 0x80
    raise Broken, "a number is too long" if (shift += 7) == 70
  end
  raise Broken, "a number is too large" if value >> 64 > 0
  [value, at]
end

# [[number, value], ...] with a number for a varint, bytes for a text, nil for what no aggregate has.
def fields(bytes)
  at = 0
  found = []
  while at < bytes.bytesize
    tag, at = varint(bytes, at)
    value = nil
    case tag & 7
    when 0 then value, at = varint(bytes, at)
    when 1 then at += 8
    when 5 then at += 4
    when 2
      size, at = varint(bytes, at)
      value = bytes.byteslice(at, size)
      at += size
    else raise Broken, "wire type #{tag & 7}"
    end
    raise Broken, "a field is cut" if at > bytes.bytesize
    found << [tag >> 3, value]
  end
  found
end

def key(table, index)
  text = table[index]
  raise Broken, "no key #{index}" unless text.is_a?(String)
  text = text.dup.force_encoding("UTF-8")
  raise Broken, "key #{index} is no text" unless text.valid_encoding?
  raise Broken, "key #{index} is too long" if text.length > 256
  text
end

# [[partition key, data, explicit hash key or nil], ...]; nil for a plain record.
def decode(data)
  return nil unless data.start_with?(MAGIC) && data.bytesize > 20
  message = data.byteslice(4...-16)
  raise Broken, "the digest is wrong" unless Digest::MD5.digest(message) == data.byteslice(-16..)
  tables = Hash.new { |hash, number| hash[number] = [] }
  fields(message).each { |number, value| tables[number] << value }
  raise Broken, "no user records" if tables[3].empty?
  tables[3].map do |record|
    parts = fields(record).to_h
    raise Broken, "a field is missing" unless parts[1].is_a?(Integer) && parts[3].is_a?(String)
    [key(tables[1], parts[1]), parts[3], parts.key?(2) ? key(tables[2], parts[2]) : nil]
  end
end
