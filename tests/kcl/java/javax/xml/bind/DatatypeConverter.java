package javax.xml.bind;

/**
 * Java had this class up to release 10; the KCL expects jaxb-api, which kclpy-ext leaves out. The KCL needs it for a line of its
 * log. Without it a user record that the KCL cannot read ends the whole batch (KCL-3).
 */
public class DatatypeConverter {
    public static String printBase64Binary(byte[] data) {
        return java.util.Base64.getEncoder().encodeToString(data);
    }
}
