// The Java machine's own use of malloc: its compiler's memory, direct buffers, compression, threads.
// The objects of the program live in Java's own heap and are not the question here.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public final class Work {
  private static final int THREADS = 6;
  private static final int TASKS = 24;

  public static void main(String[] arguments) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(THREADS);
    List<Callable<String>> tasks = new ArrayList<>();
    for (int task = 0; task < TASKS; task++) {
      int seed = task;
      tasks.add(() -> packed(seed) + " " + direct(seed));
    }
    CRC32 all = new CRC32();
    for (var result : pool.invokeAll(tasks)) all.update(result.get().getBytes(StandardCharsets.UTF_8));
    pool.shutdown();
    System.out.println("tasks " + TASKS + ", checksum " + Long.toHexString(all.getValue()));

    long shortThreads = 0;
    for (int number = 0; number < 200; number++) {
      int size = number;
      long[] sum = new long[1];
      Thread thread = new Thread(() -> sum[0] = IntStream.range(0, size * 10).mapToLong(i -> i).sum());
      thread.start();
      thread.join();
      shortThreads += sum[0];
    }
    System.out.println("short threads " + shortThreads);
  }

  private static String packed(int seed) throws Exception {
    StringBuilder text = new StringBuilder();
    for (int line = 0; line < 4000; line++) text.append(line * 31 + seed).append(' ');
    byte[] plain = text.toString().getBytes(StandardCharsets.UTF_8);
    Deflater deflater = new Deflater(1 + seed % 9);
    deflater.setInput(plain);
    deflater.finish();
    byte[] small = new byte[plain.length + 100];
    int size = deflater.deflate(small);
    deflater.end();
    Inflater inflater = new Inflater();
    inflater.setInput(small, 0, size);
    byte[] again = new byte[plain.length];
    inflater.inflate(again);
    inflater.end();
    if (!java.util.Arrays.equals(plain, again)) throw new AssertionError("the copy differs");
    return plain.length + ">" + size;
  }

  private static long direct(int seed) {
    long sum = 0;
    for (int round = 1; round <= 200; round++) {
      ByteBuffer buffer = ByteBuffer.allocateDirect(round * (seed + 1) * 13);
      while (buffer.hasRemaining()) buffer.put((byte) (buffer.position() * seed));
      sum += buffer.get(buffer.capacity() / 2);
    }
    return sum;
  }
}
