import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * What the KCL delivers of a Kinesis record. A question is a line: the first and the last hash key of the shard in decimal, or
 * "- -" for a KCL that does not know its shard, and the data in hexadecimal. The answer is a line: for each user record
 * "AGGREGATED,SUB-SEQUENCE NUMBER,PARTITION KEY,EXPLICIT HASH KEY,DATA", the last three in hexadecimal, "-" for no explicit hash
 * key; or "threw CLASS". Started by real_kcl.py. Janino compiles it, which knows no lambdas, and no types of a list's elements.
 */
public class RealKcl {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // the KCL's log
        AggregatorUtil kcl = new AggregatorUtil();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        String line = questions.readLine();
        while (line != null) {
            String[] question = line.split(" ", 3);
            answers.println(answer(kcl, question[0], question[1], HexFormat.of().parseHex(question[2])));
            answers.flush();
            line = questions.readLine();
        }
    }

    private static String answer(AggregatorUtil kcl, String first, String last, byte[] data) {
        List kinesisRecords = Collections.singletonList(KinesisClientRecord.builder()
                .sequenceNumber("1")
                .partitionKey("outer")
                .data(ByteBuffer.wrap(data))
                .build());
        StringBuilder answer = new StringBuilder();
        try {
            List userRecords = first.equals("-")
                    ? kcl.deaggregate(kinesisRecords)
                    : kcl.deaggregate(kinesisRecords, new BigInteger(first), new BigInteger(last));
            for (int i = 0; i < userRecords.size(); i++) {
                append(answer, (KinesisClientRecord) userRecords.get(i));
            }
        } catch (Throwable error) {
            return "threw " + error.getClass().getName();
        }
        return answer.toString();
    }

    private static void append(StringBuilder answer, KinesisClientRecord userRecord) {
        ByteBuffer data = (ByteBuffer) userRecord.data().duplicate();
        data.rewind(); // the KCL leaves the data of what it could not open at its end
        byte[] content = new byte[data.remaining()];
        data.get(content);
        String explicitHashKey = userRecord.explicitHashKey();
        answer.append(answer.length() == 0 ? "" : " ")
                .append(userRecord.aggregated())
                .append(',')
                .append(userRecord.subSequenceNumber())
                .append(',')
                .append(hex(userRecord.partitionKey()))
                .append(',')
                .append(explicitHashKey == null ? "-" : hex(explicitHashKey))
                .append(',')
                .append(HexFormat.of().formatHex(content));
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
