import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.recipes.shared.SharedValue;
import org.apache.curator.framework.recipes.shared.SharedValueListener;
import org.apache.curator.framework.recipes.shared.SharedValueReader;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;

/** A client of Curator's recipes, driven by lines: see README.md. */
public final class CuratorPeer {
    private static final int PATIENCE_SECONDS = 60;

    private final String[] arguments;
    private final Map<String, Object> locks = new HashMap<>();
    private final Map<String, SharedCount> counts = new HashMap<>();
    private final Map<String, SharedValue> values = new HashMap<>();
    private final Deque<Held> held = new ArrayDeque<>();
    private final Random random = new Random();
    private volatile CuratorFramework client;
    private volatile boolean isStopped;
    /** When this hold's client was first told that its connection is in doubt; 0: not yet. */
    private final AtomicLong doubtfulSince = new AtomicLong();
    private boolean isSlow;

    /** What an acquire got. */
    private interface Held {
        String mode();

        List<String> nodes() throws Exception;

        void release() throws Exception;
    }

    private interface Task {
        void run() throws Exception;
    }

    private CuratorPeer(String[] arguments) {
        this.arguments = arguments;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String[] place = arguments; place != null; ) {
            CuratorPeer peer = new CuratorPeer(place);
            peer.connect();
            byte[] password = peer.client.getZookeeperClient().getZooKeeper().getSessionPasswd();
            say("ready " + peer.session() + " " + HexFormat.of().formatHex(password));
            place = peer.listen(in);
        }
        // The owner may be stuck in a wait, which Curator does not end when its client is closed.
        System.exit(0);
    }

    // Whoever holds a lock of Curator's is a thread, so all locks belong to one; the others keep listening. Gives the
    // arguments of the client that comes next, and null if none does.
    private String[] listen(BufferedReader in) throws Exception {
        ExecutorService owner = Executors.newSingleThreadExecutor();
        String line;
        while ((line = in.readLine()) != null && !line.equals("quit") && !line.equals("leave")) {
            String[] words = line.split(" ");
            Task task = () -> obey(words);
            switch (words[0]) {
                case "acquire", "release", "hammer", "transfer", "count-hammer", "revoke-all" -> owner.execute(() -> guarded(task));
                default -> guarded(task);
            }
        }
        client.close();
        owner.shutdown();
        if (!"leave".equals(line) || !owner.awaitTermination(200, TimeUnit.MILLISECONDS)) {
            say("bye");
            return null;
        }
        say("free");
        line = in.readLine();
        return line == null ? null : line.split("\t");
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire" -> acquire(words[1], words[2], Long.parseLong(words[3]));
            case "release" -> {
                Held last = held.pop();
                long at = System.nanoTime();
                last.release();
                say("released " + at);
            }
            case "hammer" -> {
                isSlow = words.length > 4;
                hammer(words[1], words[2], Integer.parseInt(words[3]));
            }
            case "revoke" -> {
                long at = System.nanoTime();
                Revoker.attemptRevoke(client, words[1]);
                say("revoked " + at);
            }
            case "revoke-all" -> revokeAll(words[1]);
            case "transfer" -> transfer(words[2], Integer.parseInt(words[3]), Integer.parseInt(words[4]),
                    Integer.parseInt(words[5]));
            case "stop" -> isStopped = true;
            case "watch-count" -> watchCount(words[1]);
            case "set-count" -> {
                count(words[1]).setCount(Integer.parseInt(words[2]));
                say("set " + System.nanoTime());
            }
            case "watch-value" -> watchValue(words[1]);
            case "set-value" -> {
                value(words[1]).setValue(words[2].getBytes(StandardCharsets.UTF_8));
                say("set " + System.nanoTime());
            }
            case "try-value" -> {
                SharedValue value = value(words[1]);
                say("tried " + value.trySetValue(value.getVersionedValue(), words[2].getBytes(StandardCharsets.UTF_8)));
            }
            case "count-hammer" -> countHammer(words[1], Integer.parseInt(words[2]));
            case "list" -> say("list " + String.join(" ", participants(words[1], words[2])));
            case "read" -> read(words[1]);
            case "acl" -> say("acl " + client.getACL().forPath(words[1]));
            case "expire" -> expire();
            case "session" -> say("session " + session());
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /**
     * Curator's client takes its session for expired. Its thread of events stands still meanwhile: woken before the session is
     * closed, a waiter would set its next watch in this one, of which it hears no more.
     */
    private void expire() throws Exception {
        CountDownLatch stands = new CountDownLatch(1);
        CountDownLatch goesOn = new CountDownLatch(1);
        client.checkExists().inBackground((client, event) -> {
            stands.countDown();
            goesOn.await();
        }).forPath("/");
        stands.await();
        try {
            client.getZookeeperClient().getZooKeeper().getTestable().injectSessionExpiration();
        } finally {
            goesOn.countDown();
        }
        say("expired " + System.nanoTime());
    }

    private static void guarded(Task task) {
        try {
            task.run();
        } catch (Throwable error) {
            say("error " + String.valueOf(error).replace('\n', ' '));
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    // CONNECT NAMESPACE SESSION-MILLISECONDS [auth=USER:PASSWORD] [data=TEXT] [persistent-parents]
    private void connect() throws Exception {
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
                .connectString(arguments[0])
                .namespace(arguments[1])
                .sessionTimeoutMs(Integer.parseInt(arguments[2]))
                .connectionTimeoutMs(10_000)
                .retryPolicy(new RetryNTimes(100, 100));
        for (String option : Arrays.copyOfRange(arguments, 3, arguments.length)) {
            String value = option.substring(option.indexOf('=') + 1);
            if (option.startsWith("auth=")) {
                builder.authorization("digest", value.getBytes(StandardCharsets.UTF_8)).aclProvider(creatorOnly());
            } else if (option.startsWith("data=")) {
                builder.defaultData(value.getBytes(StandardCharsets.UTF_8));
            } else if (option.equals("persistent-parents")) {
                builder.dontUseContainerParents();
            } else {
                throw new IllegalArgumentException(option);
            }
        }
        if (Boolean.getBoolean("peer.creatorOnly")) {
            builder.aclProvider(creatorOnly());
        }
        client = builder.build();
        client.getConnectionStateListenable().addListener((of, state) -> {
            if (!state.isConnected()) {
                doubtfulSince.compareAndSet(0, System.nanoTime());
            }
        });
        client.start();
        if (!client.blockUntilConnected(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
    }

    private static ACLProvider creatorOnly() {
        return new ACLProvider() {
            @Override
            public List<ACL> getDefaultAcl() {
                return ZooDefs.Ids.CREATOR_ALL_ACL;
            }

            @Override
            public List<ACL> getAclForPath(String path) {
                return ZooDefs.Ids.CREATOR_ALL_ACL;
            }
        };
    }

    private long session() throws Exception {
        return client.getZookeeperClient().getZooKeeper().getSessionId();
    }

    private void acquire(String kind, String path, long timeout) throws Exception {
        Held got = attempt(kind, path, timeout);
        long at = System.nanoTime();
        if (got == null) {
            say("timeout " + at);
            return;
        }
        held.push(got);
        String node = got.nodes().get(0);
        Stat stat = client.checkExists().forPath(node);
        say("acquired " + at + " " + node + " " + describe(stat) + " " + session());
    }

    private static String describe(Stat stat) {
        return stat == null ? "0 0" : stat.getCzxid() + " " + stat.getEphemeralOwner();
    }

    /** So many times, or until told to stop: acquire, look at the own znodes, release. */
    /** Threads that move money between two accounts each time, which they have locked both. */
    private void transfer(String directory, int accounts, int rounds, int threads) throws Exception {
        long begin = System.nanoTime();
        ExecutorService workers = Executors.newFixedThreadPool(threads);
        List<Callable<Void>> work = Collections.nCopies(threads, () -> {
            for (int round = 0; round < rounds; round++) {
                int from = random.nextInt(accounts);
                int to = (from + 1 + random.nextInt(accounts - 1)) % accounts;
                move(directory, from, to);
            }
            return null;
        });
        for (Future<Void> worker : workers.invokeAll(work)) {
            worker.get();
        }
        workers.shutdown();
        say("moved " + (System.nanoTime() - begin));
    }

    private void move(String directory, int from, int to) throws Exception {
        String lock = directory + "/lock";
        InterProcessLock both = new InterProcessMultiLock(client,
                List.of(lock + (char) ('a' + Math.min(from, to)), lock + (char) ('a' + Math.max(from, to))));
        both.acquire();
        try {
            add(directory + "/money" + (char) ('a' + from), -1);
            add(directory + "/money" + (char) ('a' + to), 1);
        } finally {
            both.release();
        }
    }

    private void add(String account, int amount) throws Exception {
        int before = Integer.parseInt(new String(client.getData().forPath(account), StandardCharsets.UTF_8));
        client.setData().forPath(account, Integer.toString(before + amount).getBytes(StandardCharsets.UTF_8));
    }

    private void hammer(String kind, String path, int rounds) throws Exception {
        int failures = 0;
        for (int round = 0; round < rounds && !isStopped; ) {
            try {
                once(kind, path);
                round++;
            } catch (KeeperException.NoNodeException gone) {
                // Curator's create makes missing parents once. Others may empty them, and the server remove them, before
                // it comes again. Nothing was left behind.
            } catch (Exception error) {
                failures++;
                System.err.println("hammer: " + error);
                // An acquire that failed may have left a znode behind. It goes with the session.
                client.close();
                locks.clear();
                connect();
            }
        }
        say("done " + failures);
    }

    private void once(String kind, String path) throws Exception {
        boolean isRevocable = kind.equals("revocable");
        CountDownLatch asked = new CountDownLatch(isRevocable ? 1 : 0);
        AtomicLong askedAt = new AtomicLong();
        if (isRevocable) {
            mutex(path).makeRevocable(lock -> {
                askedAt.compareAndSet(0, System.nanoTime());
                asked.countDown();
            });
        }
        Held got = attempt(kind, path, -1);
        long from = System.nanoTime();
        doubtfulSince.set(0);
        List<String> lines = new ArrayList<>();
        for (String node : got.nodes()) {
            Stat stat = client.checkExists().forPath(node);
            lines.add(node + " " + describe(stat) + " " + session());
        }
        if (!asked.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("nobody asked for the lock");
        }
        if (isRevocable) {
            say("told " + askedAt + " " + lines.get(0));
        }
        if (isSlow) {
            Thread.sleep(random.nextInt(40) == 0 ? random.nextLong(300, 3000) : random.nextLong(15));
        }
        long to = System.nanoTime();
        long doubtful = doubtfulSince.get();
        long validUntil = isSlow && doubtful != 0 ? Math.min(doubtful, to) : to;
        try {
            got.release();
        } finally {
            for (String line : lines) {
                say("hold " + got.mode() + " " + from + " " + to + " " + line + " " + validUntil + " 0");
            }
        }
    }

    // null: the time was up. A negative timeout is for ever.
    private Held attempt(String kind, String path, long timeout) throws Exception {
        if (kind.startsWith("semaphore:") || kind.startsWith("semaphore@")) {
            InterProcessSemaphoreV2 semaphore = semaphore(kind, path);
            Lease lease = timeout < 0 ? semaphore.acquire() : semaphore.acquire(timeout, TimeUnit.MILLISECONDS);
            return lease == null ? null : leased(path, lease);
        }
        if (kind.equals("rw")) {
            return attempt(random.nextInt(3) == 0 ? "write" : "read", path, timeout);
        }
        InterProcessLock lock = lock(kind, path);
        if (timeout < 0) {
            lock.acquire();
        } else if (!lock.acquire(timeout, TimeUnit.MILLISECONDS)) {
            return null;
        }
        return new Held() {
            @Override
            public String mode() {
                return kind.equals("read") ? "read" : kind.equals("semaphore-mutex") ? "lease" : "write";
            }

            @Override
            public List<String> nodes() throws Exception {
                return nodesOf(kind, path, lock);
            }

            @Override
            public void release() throws Exception {
                lock.release();
            }
        };
    }

    private static Held leased(String path, Lease lease) {
        return new Held() {
            @Override
            public String mode() {
                return "lease";
            }

            @Override
            public List<String> nodes() {
                return List.of(path + "/leases/" + lease.getNodeName());
            }

            @Override
            public void release() throws Exception {
                lease.close();
            }
        };
    }

    private InterProcessLock lock(String kind, String path) {
        return switch (kind) {
            case "mutex", "revocable" -> mutex(path);
            case "semaphore-mutex" -> (InterProcessLock) locks.computeIfAbsent(
                    "semaphore-mutex " + path, key -> new InterProcessSemaphoreMutex(client, path));
            case "read" -> readWrite(path).readLock();
            case "write" -> readWrite(path).writeLock();
            // The caller has sorted the paths, as the Rust side does by itself.
            case "multi" -> multi(path);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    // The caller has sorted the paths, as the Rust side does by itself.
    private InterProcessLock multi(String paths) {
        List<InterProcessLock> parts = new ArrayList<>();
        for (String path : paths.split(",")) {
            parts.add(mutex(path));
        }
        return new InterProcessMultiLock(parts);
    }

    private InterProcessMutex mutex(String path) {
        Object mutex = locks.computeIfAbsent("mutex " + path, key -> new InterProcessMutex(client, path));
        return (InterProcessMutex) mutex;
    }

    private InterProcessReadWriteLock readWrite(String path) {
        Object lock = locks.computeIfAbsent("rw " + path, key -> new InterProcessReadWriteLock(client, path));
        return (InterProcessReadWriteLock) lock;
    }

    // semaphore:LIMIT, or semaphore@PATH-OF-A-COUNT
    private InterProcessSemaphoreV2 semaphore(String kind, String path) throws Exception {
        Object semaphore = locks.get(kind + " " + path);
        if (semaphore == null) {
            String limit = kind.substring("semaphore:".length());
            semaphore = kind.startsWith("semaphore:")
                    ? new InterProcessSemaphoreV2(client, path, Integer.parseInt(limit))
                    : new InterProcessSemaphoreV2(client, path, (SharedCountReader) count(limit));
            locks.put(kind + " " + path, semaphore);
        }
        return (InterProcessSemaphoreV2) semaphore;
    }

    // Curator does not make the names of its znodes public in every version.
    private List<String> nodesOf(String kind, String path, InterProcessLock lock) throws Exception {
        switch (kind) {
            case "semaphore-mutex": {
                Field lease = InterProcessSemaphoreMutex.class.getDeclaredField("lease");
                lease.setAccessible(true);
                return List.of(path + "/leases/" + ((Lease) lease.get(lock)).getNodeName());
            }
            case "multi": {
                List<String> nodes = new ArrayList<>();
                for (String part : path.split(",")) {
                    nodes.add(nodeOf(mutex(part)));
                }
                return nodes;
            }
            default:
                return List.of(nodeOf(lock));
        }
    }

    private static String nodeOf(InterProcessLock lock) throws Exception {
        Method path = InterProcessMutex.class.getDeclaredMethod("getLockPath");
        path.setAccessible(true);
        return (String) path.invoke(lock);
    }

    private Collection<String> participants(String kind, String path) throws Exception {
        return switch (kind) {
            case "mutex" -> new InterProcessMutex(client, path).getParticipantNodes();
            case "read" -> readWrite(path).readLock().getParticipantNodes();
            case "write" -> readWrite(path).writeLock().getParticipantNodes();
            default -> semaphore(kind, path).getParticipantNodes();
        };
    }

    private void read(String path) throws Exception {
        byte[] data = client.getData().forPath(path);
        say("data " + new String(data, StandardCharsets.UTF_8));
    }

    /** Asks whoever is first for the lock, until told to stop. */
    private void revokeAll(String path) throws Exception {
        InterProcessMutex mutex = new InterProcessMutex(client, path);
        String last = "";
        while (!isStopped) {
            Collection<String> nodes = mutex.getParticipantNodes();
            String first = nodes.isEmpty() ? "" : nodes.iterator().next();
            if (!first.contains("-lock-")) {
                continue;
            }
            long at = System.nanoTime();
            if (!first.equals(last)) {
                say("asked " + at + " " + first);
                last = first;
            }
            // Again and again: Curator loses a request that comes before its watch.
            Revoker.attemptRevoke(client, first);
        }
        say("stopped");
    }

    private SharedCount count(String path) throws Exception {
        SharedCount count = counts.get(path);
        if (count == null) {
            count = new SharedCount(client, path, 0);
            count.start();
            counts.put(path, count);
        }
        return count;
    }

    private void watchCount(String path) throws Exception {
        SharedCount count = count(path);
        count.addListener(new SharedCountListener() {
            @Override
            public void countHasChanged(SharedCountReader reader, int value) {
                say("count-is " + value);
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        });
        say("watching " + count.getCount());
    }

    private SharedValue value(String path) throws Exception {
        SharedValue value = values.get(path);
        if (value == null) {
            value = new SharedValue(client, path, "of-java".getBytes(StandardCharsets.UTF_8));
            value.start();
            values.put(path, value);
        }
        return value;
    }

    private void watchValue(String path) throws Exception {
        SharedValue value = value(path);
        value.getListenable().addListener(new SharedValueListener() {
            @Override
            public void valueHasChanged(SharedValueReader reader, byte[] bytes) {
                say("value-is " + new String(bytes, StandardCharsets.UTF_8));
            }

            @Override
            public void stateChanged(CuratorFramework client, ConnectionState state) {}
        });
        VersionedValue<byte[]> now = value.getVersionedValue();
        say("watching " + now.getVersion() + " " + new String(now.getValue(), StandardCharsets.UTF_8));
    }

    /** So many times, or until told to stop: one more than it was. */
    private void countHammer(String path, int rounds) throws Exception {
        SharedCount count = count(path);
        for (int round = 0; round < rounds && !isStopped; ) {
            VersionedValue<Integer> before = count.getVersionedValue();
            long from = System.nanoTime();
            if (count.trySetCount(before, before.getValue() + 1)) {
                say("counted " + from + " " + System.nanoTime() + " " + (before.getValue() + 1));
                round++;
            }
        }
        say("done 0");
    }
}
