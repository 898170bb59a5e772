import java.nio.ByteBuffer;
import java.util.List;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** The KCL itself; compiled only where KCL_CLASSPATH names it. */
final class Kcl implements Opener<KinesisClientRecord> {
    private final AggregatorUtil kcl = new AggregatorUtil();

    @Override
    public KinesisClientRecord kinesisRecord(String sequenceNumber, ByteBuffer data) {
        return KinesisClientRecord.builder()
                .sequenceNumber(sequenceNumber)
                .partitionKey("outer")
                .data(data)
                .build();
    }

    @Override
    public List<KinesisClientRecord> open(KinesisClientRecord kinesisRecord) {
        kinesisRecord.data().rewind(); // the KCL leaves it at its end
        return kcl.deaggregate(List.of(kinesisRecord), LOWEST, HIGHEST);
    }

    @Override
    public String partitionKey(KinesisClientRecord userRecord) {
        return userRecord.aggregated() ? userRecord.partitionKey() : null;
    }

    @Override
    public String explicitHashKey(KinesisClientRecord userRecord) {
        return userRecord.explicitHashKey();
    }

    @Override
    public long subSequenceNumber(KinesisClientRecord userRecord) {
        return userRecord.subSequenceNumber();
    }

    @Override
    public ByteBuffer data(KinesisClientRecord userRecord) {
        return userRecord.data();
    }
}
