import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.data.Stat;

/** Curator's side of the bench: one command a line, one line in reply. Times are nanoseconds of the monotonic clock. */
public final class CuratorPeer {
    private static final int LEASES = 10;

    private interface Task {
        void run() throws Exception;
    }

    private static CuratorFramework shared;
    private static String address;
    private static final List<CuratorFramework> own = new ArrayList<>();
    private static Queue queue;
    private static InterProcessLock held;
    /** The locks on many paths, which last from one round to the next. */
    private static final Map<String, Task[]> many = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String reply;
            try {
                reply = "ok " + answer(line.trim().split(" "));
            } catch (Throwable error) {
                reply = "error " + error.toString().replace('\n', ' ');
            }
            System.out.println(reply.trim());
        }
        System.exit(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "connect":
                address = words[1];
                shared = connect();
                return "";
            case "cycles":
                return cycles(words[1], words[2], Integer.parseInt(words[3]));
            case "hammer":
                return hammer(words[1], Long.parseLong(words[2]));
            case "waits":
                return waits(words[1], Long.parseLong(words[2]));
            case "queue":
                queue = new Queue(words[1].equals("shared"), words[2], Integer.parseInt(words[3]),
                    words[4].equals("held"));
                return "";
            case "first":
                return queue.first();
            case "drain":
                return queue.drain();
            case "forget":
                for (CuratorFramework client : own) {
                    client.close();
                }
                own.clear();
                return "";
            case "hold":
                held = lock(shared, "mutex", words[1]);
                held.acquire();
                return "";
            case "unhold":
                long released = System.nanoTime();
                held.release();
                return Long.toString(released);
            case "try":
                return tries(words[1], Integer.parseInt(words[2]));
            case "many":
                return many(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                    Long.parseLong(words[4]));
            case "mix":
                return mix(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]));
            default:
                throw new UnsupportedOperationException(words[0]);
        }
    }

    private static CuratorFramework connect() throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
            .connectString(address)
            .sessionTimeoutMs(60_000)
            .connectionTimeoutMs(15_000)
            .retryPolicy(new ExponentialBackoffRetry(100, 10))
            .build();
        client.start();
        if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
        return client;
    }

    private static InterProcessLock lock(CuratorFramework client, String kind, String path) {
        if (kind.startsWith("multi-")) {
            List<String> paths = new ArrayList<>();
            for (int k = 0; k < Integer.parseInt(kind.substring("multi-".length())); k++) {
                paths.add(path + "-" + (char) ('a' + k / 26) + (char) ('a' + k % 26));
            }
            return new InterProcessMultiLock(client, paths);
        }
        switch (kind) {
            case "mutex":
                return new InterProcessMutex(client, path);
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            case "semaphore_mutex":
                return new InterProcessSemaphoreMutex(client, path);
            default:
                throw new UnsupportedOperationException(kind);
        }
    }

    private static Task cycle(CuratorFramework client, String kind, String path) {
        if (kind.equals("semaphore")) {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, LEASES);
            return () -> {
                Lease lease = semaphore.acquire();
                semaphore.returnLease(lease);
            };
        }
        InterProcessLock lock = lock(client, kind, path);
        return () -> {
            lock.acquire();
            lock.release();
        };
    }

    private static String cycles(String kind, String path, int count) throws Exception {
        Task cycle = cycle(shared, kind, path);
        StringBuilder times = new StringBuilder();
        for (int i = 0; i < count; i++) {
            long begin = System.nanoTime();
            cycle.run();
            times.append(' ').append(System.nanoTime() - begin);
        }
        return times.toString().trim();
    }

    private static String hammer(String path, long millis) throws Exception {
        Task cycle = cycle(shared, "mutex", path);
        StringBuilder times = new StringBuilder();
        long end = System.nanoTime() + millis * 1_000_000;
        for (long begin = System.nanoTime(); begin < end; begin = System.nanoTime()) {
            cycle.run();
            times.append(' ').append(System.nanoTime() - begin);
        }
        return times.toString().trim();
    }

    private static String waits(String path, long millis) throws Exception {
        InterProcessLock lock = lock(shared, "mutex", path);
        StringBuilder times = new StringBuilder();
        long end = System.nanoTime() + millis * 1_000_000;
        for (long begin = System.nanoTime(); begin < end; begin = System.nanoTime()) {
            lock.acquire();
            times.append(' ').append(System.nanoTime() - begin);
            lock.release();
            Thread.sleep(1);
        }
        return times.toString().trim();
    }

    private static String tries(String path, int count) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(shared, path);
        StringBuilder times = new StringBuilder();
        for (int i = 0; i < count; i++) {
            long begin = System.nanoTime();
            if (lock.acquire(0, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the lock was free");
            }
            times.append(' ').append(System.nanoTime() - begin);
        }
        return times.toString().trim();
    }

    private static String many(String prefix, int paths, int threads, long millis) throws Exception {
        Task[] cycles = many.computeIfAbsent(prefix, key -> new Task[paths]);
        for (int i = 0; i < paths && cycles[i] == null; i++) {
            cycles[i] = cycle(shared, "mutex", prefix + "/" + i);
        }
        return run(threads, millis, thread -> {
            int[] next = {thread};
            return () -> {
                cycles[next[0]].run();
                next[0] += threads;
                if (next[0] >= paths) {
                    next[0] = thread;
                }
            };
        });
    }

    private static String mix(String kind, String path, int threads, long millis) throws Exception {
        if (!kind.equals("read_write")) {
            Task cycle = cycle(shared, kind, path);
            return run(threads, millis, thread -> cycle);
        }
        Task read = cycle(shared, "read", path);
        Task write = cycle(shared, "write", path);
        return run(threads, millis, thread -> {
            Random random = new Random(thread);
            return () -> (random.nextInt(10) == 0 ? write : read).run();
        });
    }

    private interface PerThread {
        Task of(int thread);
    }

    /** Cycles and the time they took. */
    private static String run(int threads, long millis, PerThread perThread) throws Exception {
        AtomicLong cycles = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch go = new CountDownLatch(1);
        List<Thread> running = new ArrayList<>();
        long[] end = new long[1];
        for (int thread = 0; thread < threads; thread++) {
            Task task = perThread.of(thread);
            Thread started = new Thread(() -> {
                try {
                    task.run();
                    ready.countDown();
                    go.await();
                    while (System.nanoTime() < end[0]) {
                        task.run();
                        cycles.incrementAndGet();
                    }
                } catch (Exception error) {
                    failure.set(error);
                    ready.countDown();
                }
            });
            started.start();
            running.add(started);
        }
        ready.await();
        long begin = System.nanoTime();
        end[0] = begin + millis * 1_000_000;
        go.countDown();
        for (Thread thread : running) {
            thread.join();
        }
        long took = System.nanoTime() - begin;
        if (failure.get() != null) {
            throw failure.get();
        }
        return cycles.get() + " " + took;
    }

    /** Waiters behind one holder. */
    private static final class Queue {
        private final InterProcessLock holder;
        private final List<Thread> threads = new ArrayList<>();
        private final long[] grants;
        private final AtomicInteger granted = new AtomicInteger();
        private final AtomicReference<Exception> failure = new AtomicReference<>();

        Queue(boolean isShared, String path, int count, boolean isHeld) throws Exception {
            grants = new long[count];
            InterProcessMutex common = new InterProcessMutex(shared, path);
            holder = isHeld ? common : null;
            if (isHeld) {
                common.acquire();
            }
            for (int i = 0; !isShared && own.size() < count; i++) {
                own.add(connect());
            }
            // The end of a thread costs time, and is no hand-over.
            CountDownLatch passed = new CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                InterProcessMutex lock = isShared ? common : new InterProcessMutex(own.get(i), path);
                Thread thread = new Thread(null, () -> {
                    try {
                        lock.acquire();
                        grants[granted.getAndIncrement()] = System.nanoTime();
                        lock.release();
                    } catch (Exception error) {
                        failure.set(error);
                    }
                    passed.countDown();
                    try {
                        passed.await();
                    } catch (InterruptedException error) {
                        failure.set(error);
                    }
                }, "waiter", 512 * 1024);
                thread.start();
                threads.add(thread);
            }
            awaitChildren(path, count + 1);
        }

        private static void awaitChildren(String path, int count) throws Exception {
            while (true) {
                Stat stat = shared.checkExists().forPath(path);
                if (stat != null && stat.getNumChildren() >= count) {
                    return;
                }
                Thread.sleep(5);
            }
        }

        /** When the first of them was granted, once one was. */
        String first() throws Exception {
            while (granted.get() == 0 || grants[0] == 0) {
                Thread.sleep(2);
            }
            return Long.toString(grants[0]);
        }

        String drain() throws Exception {
            long released = System.nanoTime();
            if (holder != null) {
                holder.release();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            if (failure.get() != null) {
                throw failure.get();
            }
            StringBuilder times = new StringBuilder().append(released);
            for (long grant : grants) {
                times.append(' ').append(grant);
            }
            return times.toString();
        }
    }
}
