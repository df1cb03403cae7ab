#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# A Java virtual machine under load, with each of its collectors: threads that allocate while others
# stop them, faults that it handles (stack overflows, truncated files), and processes that it
# starts.

. /suites/lib.sh
mkdir -p /tmp/jvm
cd /tmp/jvm
cat >Load.java <<'END'
import java.io.RandomAccessFile;
import java.lang.ref.WeakReference;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;

class Load {
    static final class Node {
        final Node left, right;
        final long[] data;

        Node(int depth, long seed) {
            data = new long[16];
            for (int i = 0; i < data.length; i++) data[i] = seed + i;
            left = depth == 0 ? null : new Node(depth - 1, seed * 2);
            right = depth == 0 ? null : new Node(depth - 1, seed * 2 + 1);
        }

        long sum() {
            long sum = 0;
            for (long d : data) sum += d;
            return sum + (left == null ? 0 : left.sum()) + (right == null ? 0 : right.sum());
        }
    }

    /** Trees that live for a while beside much that does not. */
    static long trees(int rounds, long seed) {
        Deque<Node> kept = new ArrayDeque<>();
        List<WeakReference<Node>> weak = new ArrayList<>();
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            Node tree = new Node(9, seed + i);
            kept.add(tree);
            weak.add(new WeakReference<>(tree));
            if (kept.size() > 8) sum += kept.remove().sum();
        }
        while (!kept.isEmpty()) sum += kept.remove().sum();
        return sum;
    }

    static int deep(int n) { return n == 0 ? 0 : 1 + deep(n + 1); }

    static int overflows(int times) {
        int caught = 0;
        for (int i = 0; i < times; i++) {
            try { deep(1); } catch (StackOverflowError e) { caught++; }
        }
        return caught;
    }

    /** A mapped file is truncated: the processor's fault becomes a Java error, there or later. */
    static boolean shortened() throws Exception {
        java.io.File file = java.io.File.createTempFile("map", null);
        try (RandomAccessFile f = new RandomAccessFile(file, "rw")) {
            f.setLength(1 << 16);
            MappedByteBuffer map = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 1 << 16);
            map.put(40000, (byte) 7);
            if (map.get(40000) != 7) return false;
            f.setLength(0);
            map.get(40000);
            Thread.sleep(100);
            return false;
        } catch (InternalError e) {
            return true;
        } finally {
            file.delete();
        }
    }

    static boolean children(int number) throws Exception {
        for (int i = 0; i < number; i++)
            if (new ProcessBuilder("sh", "-c", "exit " + i).start().waitFor() != i) return false;
        return true;
    }

    public static void main(String[] arguments) {
        try {
            System.exit(good(arguments) ? 0 : 1);
        } catch (Throwable e) {
            e.printStackTrace();
            System.exit(2);
        }
    }

    static boolean good(String[] arguments) throws Exception {
        int threads = 8, rounds = Integer.parseInt(arguments[0]);
        ExecutorService pool = Executors.newFixedThreadPool(threads + 2);
        List<Future<Long>> sums = new ArrayList<>();
        for (int t = 0; t < threads; t++) {
            final long seed = t;
            sums.add(pool.submit(() -> trees(rounds, seed)));
        }
        Future<Integer> caught = pool.submit(() -> overflows(100));
        Future<Boolean> started = pool.submit(() -> children(40));
        // Threads that lock, wait and are parked meanwhile.
        AtomicLong passed = new AtomicLong();
        SynchronousQueue<Integer> queue = new SynchronousQueue<>();
        Thread giver = new Thread(() -> {
            try { for (int i = 0; i < 20000; i++) queue.put(i); } catch (InterruptedException e) { }
        });
        giver.start();
        for (int i = 0; i < 20000; i++) passed.addAndGet(queue.take());
        long total = 0;
        for (Future<Long> s : sums) total += s.get();
        boolean good = caught.get() == 100 && started.get() && shortened()
            && passed.get() == 20000L * 19999 / 2;
        pool.shutdown();
        // Each node of depth d of a tree has the seed 2^d * s + its place.
        long expected = 0;
        for (int t = 0; t < threads; t++)
            for (int i = 0; i < rounds; i++)
                for (int d = 0; d < 10; d++) {
                    long n = 1L << d;
                    expected += 16 * (n * n * (t + i) + n * (n - 1) / 2) + n * 120;
                }
        System.out.println(total + " " + expected + " " + good);
        return total == expected && good;
    }
}
END
part jvm_build javac Load.java
for collector in Serial Parallel G1 Z Shenandoah; do
	part "jvm_$collector" java "-XX:+Use${collector}GC" -Xmx512m Load 4000
done
# Stops all threads each millisecond.
part jvm_stops java -XX:+UnlockDiagnosticVMOptions -XX:GuaranteedSafepointInterval=1 -Xmx512m \
	Load 4000
part jvm_compiled java -Xcomp -Xmx512m Load 1000
part jvm_interpreted java -Xint -Xmx512m Load 200
