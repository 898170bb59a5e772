import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;

/** KclLike as a function of Spark SQL: array&lt;struct&lt;partitionKey, explicitHashKey, subSequenceNumber, data&gt;&gt;. */
public final class KclLikeUdf implements UDF1<byte[], List<Row>> {
    @Override
    public List<Row> call(byte[] data) {
        var frame = new KclLike.UserRecord("0", 0, false, "outer", null, ByteBuffer.wrap(data));
        List<Row> rows = new ArrayList<>();
        for (KclLike.UserRecord made : KclLike.open(frame, KclLike.LOWEST, KclLike.HIGHEST)) {
            byte[] bytes = made.data().array();
            rows.add(RowFactory.create(
                    made.partitionKey(), made.explicitHashKey(), made.subSequenceNumber(), bytes));
        }
        return rows;
    }
}
