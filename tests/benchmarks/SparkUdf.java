import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * The KCL as a UDF of Spark: the user records of a Kinesis record's data, to be exploded; the whole hash key space is the
 * range. For tests/benchmarks/spark_functions.py.
 */
public final class SparkUdf implements UDF1<byte[], List<Row>> {
    private static final BigInteger HIGHEST = BigInteger.ONE.shiftLeft(128).subtract(BigInteger.ONE);
    private static final AggregatorUtil KCL = new AggregatorUtil();

    @Override
    public List<Row> call(byte[] frame) {
        KinesisClientRecord record = KinesisClientRecord.builder()
                .sequenceNumber("1")
                .partitionKey("outer")
                .data(ByteBuffer.wrap(frame))
                .build();
        List<Row> rows = new ArrayList<>();
        for (KinesisClientRecord user : KCL.deaggregate(List.of(record), BigInteger.ZERO, HIGHEST)) {
            ByteBuffer buffer = user.data().duplicate();
            byte[] data = new byte[buffer.remaining()];
            buffer.get(data);
            rows.add(RowFactory.create(user.partitionKey(), user.explicitHashKey(), user.subSequenceNumber(), data));
        }
        return rows;
    }
}
