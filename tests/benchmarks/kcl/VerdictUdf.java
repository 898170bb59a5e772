import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF3;

/**
 * {@link OpenerUdf} with a verdict: array&lt;struct&lt;..., expectedShardId, placement, kcl&gt;&gt; of the data, the id of its
 * shard, whose range is the whole hash key space, and the open shards: "last hash key=id", separated by blanks.
 */
public final class VerdictUdf implements UDF3<byte[], String, String, List<Row>> {
    private transient Opener<?> opener;
    private transient TreeMap<BigInteger, String> shards;

    @Override
    public List<Row> call(byte[] data, String shardId, String open) {
        if (opener == null) {
            opener = Opener.chosen();
            shards = new TreeMap<>();
            for (String shard : open.split(" ")) {
                String[] parts = shard.split("=");
                shards.put(new BigInteger(parts[0]), parts[1]);
            }
        }
        return rows(opener, data, shardId);
    }

    private <T> List<Row> rows(Opener<T> opener, byte[] data, String shardId) {
        List<Row> rows = new ArrayList<>();
        for (T made : opener.open(opener.kinesisRecord("0", ByteBuffer.wrap(data)))) {
            Map.Entry<BigInteger, String> expected = shards.ceilingEntry(opener.hashKey(made));
            String expectedId = expected == null ? null : expected.getValue();
            rows.add(RowFactory.create(
                    opener.partitionKey(made),
                    opener.explicitHashKey(made),
                    opener.subSequenceNumber(made),
                    opener.data(made).array(),
                    expectedId,
                    shardId.equals(expectedId) ? "expected" : "on-parent",
                    "delivered")); // what it opens is in its range
        }
        return rows;
    }
}
