import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;

/** One way to do a KCL consumer's work. T: its Kinesis records and user records. */
interface Opener<T> {
    BigInteger LOWEST = BigInteger.ZERO;
    BigInteger HIGHEST = BigInteger.ONE.shiftLeft(128).subtract(BigInteger.ONE);

    /** The KCL's own class where it was on the class path, else the one that is like it. */
    static Opener<?> chosen() {
        try {
            return (Opener<?>) Class.forName("Kcl").getDeclaredConstructor().newInstance();
        } catch (ClassNotFoundException absent) {
            return new KclLike();
        } catch (ReflectiveOperationException broken) {
            throw new IllegalStateException(broken);
        }
    }

    /** A Kinesis record. */
    T kinesisRecord(String sequenceNumber, ByteBuffer data);

    /** Its user records; the whole hash key space is the range. */
    List<T> open(T kinesisRecord);

    /** Null for a Kinesis record that is not aggregated. */
    String partitionKey(T userRecord);

    String explicitHashKey(T userRecord);

    long subSequenceNumber(T userRecord);

    ByteBuffer data(T userRecord);

    /** Its effective hash key. */
    default BigInteger hashKey(T userRecord) {
        return hashKey(partitionKey(userRecord), explicitHashKey(userRecord));
    }

    static BigInteger hashKey(String partitionKey, String explicitHashKey) {
        if (explicitHashKey != null) {
            return new BigInteger(explicitHashKey);
        }
        try {
            byte[] text = partitionKey.getBytes(StandardCharsets.UTF_8);
            return new BigInteger(1, MessageDigest.getInstance("MD5").digest(text));
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
