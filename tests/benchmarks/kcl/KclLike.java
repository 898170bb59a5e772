import com.google.protobuf.InvalidProtocolBufferException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import kpl_codec.Kpl;

/**
 * The work that a KCL consumer does for each Kinesis record, from the rules KCL-1 to KCL-7 of spec/03-deaggregation.md:
 * digest, protobuf, and for each user record its hash key, the range and one object. It is written for measurements
 * of sound records: what the KCL makes of damaged ones is the business of spec/reference/kcl.py.
 */
final class KclLike implements Opener<KclLike.UserRecord> {
    private static final byte[] MAGIC = {(byte) 0xF3, (byte) 0x89, (byte) 0x9A, (byte) 0xC2};
    private static final int DIGEST = 16;

    /** What a consumer gets. */
    record UserRecord(
            String sequenceNumber,
            long subSequenceNumber,
            boolean aggregated,
            String partitionKey,
            String explicitHashKey,
            ByteBuffer data,
            BigInteger hashKey) {}

    @Override
    public UserRecord kinesisRecord(String sequenceNumber, ByteBuffer data) {
        return new UserRecord(sequenceNumber, 0, false, "outer", null, data, null);
    }

    @Override
    public String partitionKey(UserRecord userRecord) {
        return userRecord.aggregated() ? userRecord.partitionKey() : null;
    }

    @Override
    public String explicitHashKey(UserRecord userRecord) {
        return userRecord.explicitHashKey();
    }

    @Override
    public long subSequenceNumber(UserRecord userRecord) {
        return userRecord.subSequenceNumber();
    }

    @Override
    public ByteBuffer data(UserRecord userRecord) {
        return userRecord.data();
    }

    @Override
    public BigInteger hashKey(UserRecord userRecord) {
        return userRecord.aggregated() ? userRecord.hashKey() : Opener.hashKey(userRecord.partitionKey(), null);
    }

    /** None if one of them is outside the range. */
    @Override
    public List<UserRecord> open(UserRecord kinesisRecord) {
        List<UserRecord> found = new ArrayList<>();
        ByteBuffer data = kinesisRecord.data().duplicate();
        byte[] message = message(data);
        if (message == null) {
            found.add(kinesisRecord);
            return found;
        }
        Kpl.AggregatedRecord aggregate;
        try {
            aggregate = Kpl.AggregatedRecord.parseFrom(message);
        } catch (InvalidProtocolBufferException refused) {
            found.add(kinesisRecord);
            return found;
        }
        List<String> partitionKeys = aggregate.getPartitionKeyTableList();
        List<String> explicitHashKeys = aggregate.getExplicitHashKeyTableList();
        long number = 0;
        for (Kpl.Record record : aggregate.getRecordsList()) {
            String partitionKey = partitionKeys.get((int) record.getPartitionKeyIndex());
            String explicitHashKey = record.hasExplicitHashKeyIndex()
                    ? explicitHashKeys.get((int) record.getExplicitHashKeyIndex())
                    : null;
            BigInteger hashKey = Opener.hashKey(partitionKey, explicitHashKey);
            if (hashKey.compareTo(LOWEST) < 0 || hashKey.compareTo(HIGHEST) > 0) {
                found.clear();
                return found;
            }
            found.add(new UserRecord(
                    kinesisRecord.sequenceNumber(),
                    number++,
                    true,
                    partitionKey,
                    explicitHashKey,
                    ByteBuffer.wrap(record.getData().toByteArray()),
                    hashKey));
        }
        return found;
    }

    /** The message of an aggregated record, null for any other data. */
    private static byte[] message(ByteBuffer data) {
        if (data.remaining() <= MAGIC.length + DIGEST) {
            return null;
        }
        byte[] magic = new byte[MAGIC.length];
        data.get(magic);
        if (!Arrays.equals(magic, MAGIC)) {
            return null;
        }
        byte[] message = new byte[data.remaining() - DIGEST];
        data.get(message);
        byte[] digest = new byte[DIGEST];
        data.get(digest);
        return Arrays.equals(md5(message), digest) ? message : null;
    }

    private static byte[] md5(byte[] data) {
        try {
            return MessageDigest.getInstance("MD5").digest(data);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
