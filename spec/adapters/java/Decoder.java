// A small decoder of aggregated records, as an example: put yours in its place.
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

record UserRecord(String partitionKey, String explicitHashKey, byte[] data) {}

class Decoder {
    private static final byte[] MAGIC = {(byte) 0xF3, (byte) 0x89, (byte) 0x9A, (byte) 0xC2};

    private record Field(int number, int wireType, long varint, byte[] bytes) {}

    /** The user records; null for a plain record. */
    static List<UserRecord> decode(byte[] data) throws Exception {
        if (data.length <= 20 || !Arrays.equals(data, 0, 4, MAGIC, 0, 4)) return null;
        byte[] message = Arrays.copyOfRange(data, 4, data.length - 16);
        byte[] digest = Arrays.copyOfRange(data, data.length - 16, data.length);
        if (!Arrays.equals(MessageDigest.getInstance("MD5").digest(message), digest)) throw new IOException("the digest is wrong");
        List<List<byte[]>> tables = List.of(new ArrayList<>(), new ArrayList<>(), new ArrayList<>());
        for (Field field : fields(message)) {
            if (field.number > 3) continue;
            if (field.wireType != 2) throw new IOException("a field of the wrong type");
            tables.get(field.number - 1).add(field.bytes);
        }
        if (tables.get(2).isEmpty()) throw new IOException("no user records");
        List<UserRecord> found = new ArrayList<>();
        for (byte[] body : tables.get(2)) {
            Map<Integer, Field> last = new HashMap<>();
            for (Field field : fields(body)) last.put(field.number, field);
            Field index = last.get(1), payload = last.get(3), explicit = last.get(2);
            if (index == null || index.wireType != 0 || payload == null || payload.wireType != 2) throw new IOException("a field is missing");
            String hashKey = explicit == null ? null : key(tables.get(1), explicit.varint);
            found.add(new UserRecord(key(tables.get(0), index.varint), hashKey, payload.bytes));
        }
        return found;
    }

    private static String key(List<byte[]> table, long index) throws IOException {
        if (index < 0 || index >= table.size()) throw new IOException("no key " + index);
        String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(table.get((int) index))).toString();
        if (text.codePointCount(0, text.length()) > 256) throw new IOException("key " + index + " is too long");
        return text;
    }

    private static List<Field> fields(byte[] bytes) throws IOException {
        List<Field> found = new ArrayList<>();
        ByteBuffer left = ByteBuffer.wrap(bytes);
        while (left.hasRemaining()) {
            long tag = varint(left), number = tag >>> 3, value = 0, size = 0;
            switch ((int) tag & 7) {
                case 0 -> value = varint(left);
                case 1 -> size = 8;
                case 2 -> size = varint(left);
                case 5 -> size = 4;
                default -> throw new IOException("unknown wire type");
            }
            if (number == 0 || number >= 1 << 29) throw new IOException("no such field");
            if (size < 0 || size > left.remaining()) throw new IOException("a field is cut");
            byte[] body = new byte[(int) size];
            left.get(body);
            found.add(new Field((int) number, (int) tag & 7, value, body));
        }
        return found;
    }

    private static long varint(ByteBuffer left) throws IOException {
        long value = 0;
        for (int shift = 0; shift < 70; shift += 7) {
            if (!left.hasRemaining()) throw new IOException("a number is cut");
            long digits = left.get();
            if (shift == 63 && digits > 1) break;
            value |= (digits & 0x7F) << shift;
            if (digits >= 0) return value;
        }
        throw new IOException("a number is too long");
    }
}
