import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;

import java.security.MessageDigest;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * The KCL behind the protocol of tests/benchmarks/worker.py, whatever the task: a Kinesis record a call, with the whole hash
 * key space as the range. Argument: the corpora's folder.
 */
public class BenchmarkWorker {
    private static final Pattern CORPUS = Pattern.compile("\"corpus\": \"([^\"]*)\"");
    /** Passes until Java has compiled everything. */
    private static final int WARM_UP = 16;

    private static final BigInteger LOWEST = BigInteger.ZERO;
    private static final BigInteger HIGHEST = BigInteger.ONE.shiftLeft(128).subtract(BigInteger.ONE);

    private final AggregatorUtil kcl = new AggregatorUtil();
    private String loaded = "";
    private List[] kinesisRecords = new List[0]; // each a list of one

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // the KCL's log
        BenchmarkWorker worker = new BenchmarkWorker();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String question = questions.readLine();
        while (question != null) {
            answers.println(worker.answer(new File(arguments[0]), question));
            question = questions.readLine();
        }
    }

    private String answer(File folder, String question) throws Exception {
        Matcher found = CORPUS.matcher(question);
        found.find();
        String corpus = found.group(1);
        if (!corpus.equals(loaded)) {
            load(new File(folder, corpus + ".frames"));
            loaded = corpus;
        }
        String digest = "null";
        if (question.contains("\"check\": true")) {
            for (int pass = 0; pass < WARM_UP; pass++) {
                timed();
            }
            digest = '"' + digest() + '"';
        }
        return "{\"seconds\": " + timed() + ", \"digest\": " + digest + "}";
    }

    private List open(List kinesisRecord) {
        ((KinesisClientRecord) kinesisRecord.get(0)).data().rewind(); // the KCL leaves it at its end
        return kcl.deaggregate(kinesisRecord, LOWEST, HIGHEST);
    }

    /** CPU seconds of this thread for one pass. The garbage collector's are not in it. */
    private double timed() {
        long start = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        long made = 0;
        for (int i = 0; i < kinesisRecords.length; i++) {
            made += open(kinesisRecords[i]).size();
        }
        double seconds = (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - start) / 1e9;
        if (made < kinesisRecords.length) {
            throw new IllegalStateException(made + " user records of " + kinesisRecords.length + " Kinesis records");
        }
        return seconds;
    }

    private String digest() throws Exception {
        MessageDigest sink = MessageDigest.getInstance("MD5");
        for (int i = 0; i < kinesisRecords.length; i++) {
            List userRecords = open(kinesisRecords[i]);
            for (int j = 0; j < userRecords.size(); j++) {
                KinesisClientRecord userRecord = (KinesisClientRecord) userRecords.get(j);
                if (userRecord.aggregated()) {
                    sink.update(userRecord.partitionKey().getBytes(StandardCharsets.UTF_8));
                }
                byte[] data = new byte[userRecord.data().remaining()];
                ((ByteBuffer) userRecord.data().duplicate()).get(data);
                sink.update((byte) 0);
                sink.update(ByteBuffer.allocate(4).putInt(data.length).array());
                sink.update(data);
            }
        }
        return HexFormat.of().formatHex(sink.digest());
    }

    /** For each frame 4 bytes of length, big-endian, then the frame. */
    private void load(File file) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
        java.util.ArrayList found = new java.util.ArrayList();
        while (bytes.hasRemaining()) {
            byte[] frame = new byte[bytes.getInt()];
            bytes.get(frame);
            found.add(Collections.singletonList(KinesisClientRecord.builder()
                    .sequenceNumber(String.valueOf(found.size()))
                    .partitionKey("outer")
                    .data(ByteBuffer.wrap(frame))
                    .build()));
        }
        kinesisRecords = (List[]) found.toArray(new List[0]);
    }
}
