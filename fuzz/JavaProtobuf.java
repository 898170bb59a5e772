// Reads messages with protobuf-java, as the KCL does. First line: a FileDescriptorProto; then a message a
// line; all hex. Answers each with what was read, or ERR. Started by fuzz/java_protobuf.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import org.sparkproject.connect.protobuf.ByteString;
import org.sparkproject.connect.protobuf.DescriptorProtos.FileDescriptorProto;
import org.sparkproject.connect.protobuf.Descriptors.Descriptor;
import org.sparkproject.connect.protobuf.Descriptors.FieldDescriptor;
import org.sparkproject.connect.protobuf.Descriptors.FileDescriptor;
import org.sparkproject.connect.protobuf.DynamicMessage;

public class JavaProtobuf {
  static final HexFormat HEX = HexFormat.of();

  static void keys(StringBuilder out, String mark, Object keys) {
    for (Object key : (List<?>) keys) {
      out.append(mark).append(HEX.formatHex(((String) key).getBytes(StandardCharsets.UTF_8)));
    }
  }

  // An index as the KCL uses it: cast to int.
  static int index(DynamicMessage record, FieldDescriptor field) {
    return (int) (long) (Long) record.getField(field);
  }

  static String read(Descriptor type, byte[] message) {
    DynamicMessage read;
    try {
      read = DynamicMessage.parseFrom(type, message);
    } catch (Exception error) {
      return "ERR";
    }
    StringBuilder out = new StringBuilder("OK");
    keys(out, " p", read.getField(type.findFieldByNumber(1)));
    keys(out, " e", read.getField(type.findFieldByNumber(2)));
    Descriptor recordType = type.findFieldByNumber(3).getMessageType();
    FieldDescriptor pk = recordType.findFieldByNumber(1);
    FieldDescriptor ehk = recordType.findFieldByNumber(2);
    FieldDescriptor data = recordType.findFieldByNumber(3);
    for (Object item : (List<?>) read.getField(type.findFieldByNumber(3))) {
      DynamicMessage record = (DynamicMessage) item;
      out.append(" r").append(index(record, pk)).append(',');
      out.append(record.hasField(ehk) ? String.valueOf(index(record, ehk)) : "-").append(',');
      out.append(HEX.formatHex(((ByteString) record.getField(data)).toByteArray()));
    }
    return out.toString();
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    FileDescriptorProto file = FileDescriptorProto.parseFrom(HEX.parseHex(in.readLine()));
    Descriptor type =
        FileDescriptor.buildFrom(file, new FileDescriptor[0]).findMessageTypeByName("AggregatedRecord");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(read(type, HEX.parseHex(line)));
    }
  }
}
