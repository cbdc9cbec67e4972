import java.util.ArrayList;
import java.util.List;

/** A JVM whose heap is full of objects. */
public class Objects {
    public static void main(String[] arguments) throws Exception {
        List<String[]> kept = new ArrayList<>();
        for (int i = 0; i < 3_000_000; i++) kept.add(new String[] {"name " + i, "value " + i % 7});
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        System.out.println(kept.size());
    }
}
