// javac *.java && java Adapter: answers in lines, without JSON (spec/09-conformance.md, section 9.2).
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Scanner;

class Adapter {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) {
        Scanner questions = new Scanner(System.in, StandardCharsets.UTF_8);
        while (questions.hasNextLine()) {
            String[] asked = questions.nextLine().split(" ");
            if (asked[0].equals("hello")) System.out.println("name example (Java)\nversion 1\nops decode");
            else System.out.print(answer(asked.length == 1 ? "" : asked[1]));
            System.out.println("end");
        }
    }

    private static String answer(String hex) {
        StringBuilder lines = new StringBuilder();
        try {
            List<UserRecord> records = Decoder.decode(HEX.parseHex(hex));
            if (records == null) return "plain\n";
            for (UserRecord record : records) {
                lines.append("partition_key ").append(text(record.partitionKey()));
                if (record.explicitHashKey() != null) lines.append("explicit_hash_key ").append(text(record.explicitHashKey()));
                lines.append("data ").append(HEX.formatHex(record.data())).append("\n");
            }
        } catch (Exception error) {
            return "error " + error + "\n";
        }
        return lines.toString();
    }

    private static String text(String key) {
        return HEX.formatHex(key.getBytes(StandardCharsets.UTF_8)) + "\n";
    }
}
