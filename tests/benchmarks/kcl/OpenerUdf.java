import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;

/** The chosen opener for Spark SQL: array&lt;struct&lt;partitionKey, explicitHashKey, subSequenceNumber, data&gt;&gt;. */
public final class OpenerUdf implements UDF1<byte[], List<Row>> {
    private transient Opener<?> opener;

    @Override
    public List<Row> call(byte[] data) {
        if (opener == null) {
            opener = Opener.chosen();
        }
        return rows(opener, data);
    }

    private static <T> List<Row> rows(Opener<T> opener, byte[] data) {
        List<Row> rows = new ArrayList<>();
        for (T made : opener.open(opener.kinesisRecord("0", ByteBuffer.wrap(data)))) {
            rows.add(RowFactory.create(
                    opener.partitionKey(made),
                    opener.explicitHashKey(made),
                    opener.subSequenceNumber(made),
                    opener.data(made).array()));
        }
        return rows;
    }
}
