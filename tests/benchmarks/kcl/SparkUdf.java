import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;

/** The chosen opener as a UDF of Spark: the user records of a Kinesis record's data, to be exploded. */
public final class SparkUdf implements UDF1<byte[], List<Row>> {
    private static final ThreadLocal<Opener<?>> OPENERS = ThreadLocal.withInitial(Opener::chosen);

    @Override
    public List<Row> call(byte[] data) {
        return rows(OPENERS.get(), data);
    }

    private static <T> List<Row> rows(Opener<T> opener, byte[] frame) {
        List<Row> rows = new ArrayList<>();
        for (T user : opener.open(opener.kinesisRecord("1", ByteBuffer.wrap(frame)))) {
            ByteBuffer buffer = opener.data(user);
            byte[] data = new byte[buffer.remaining()];
            buffer.duplicate().get(data);
            rows.add(
                    RowFactory.create(
                            opener.partitionKey(user),
                            opener.explicitHashKey(user),
                            opener.subSequenceNumber(user),
                            data));
        }
        return rows;
    }
}
