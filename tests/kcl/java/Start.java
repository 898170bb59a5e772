import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import org.codehaus.janino.JavaSourceClassLoader;

/**
 * Runs a program of the folder with_kcl: its name, then its arguments. The KCL's jars, which are those of the folder named by
 * the property "jars", see the classes of this folder that they lack; the program sees both.
 */
public class Start {
    public static void main(String[] arguments) throws Exception {
        File[] jars = new File(System.getProperty("jars")).listFiles();
        URL[] urls = new URL[jars.length];
        for (int i = 0; i < jars.length; i++) {
            urls[i] = jars[i].toURI().toURL();
        }
        ClassLoader kcl = new URLClassLoader(urls, Start.class.getClassLoader());
        ClassLoader programs = new JavaSourceClassLoader(kcl, new File[] {new File("with_kcl")}, null);
        Thread.currentThread().setContextClassLoader(programs);
        String[] rest = new String[arguments.length - 1];
        System.arraycopy(arguments, 1, rest, 0, rest.length);
        programs.loadClass(arguments[0]).getMethod("main", new Class[] {String[].class}).invoke(null, new Object[] {rest});
    }
}
