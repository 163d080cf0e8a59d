import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/** A client of ZooKeeper's own WriteLock, driven by lines: see README.md. One lock per session, as it needs it. */
public final class WriteLockPeer {
    private final String[] arguments;
    private volatile ZooKeeper zooKeeper;
    private final Semaphore acquired = new Semaphore(0);
    private final ExecutorService owner = Executors.newSingleThreadExecutor();
    private volatile WriteLock lock;
    private volatile boolean isStopped;

    private WriteLockPeer(String[] arguments) throws Exception {
        this.arguments = arguments;
        connect();
    }

    // CONNECT (with a chroot) - SESSION-MILLISECONDS
    private void connect() throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        zooKeeper = new ZooKeeper(arguments[0], Integer.parseInt(arguments[2]), event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        if (!connected.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
    }

    public static void main(String[] arguments) throws Exception {
        WriteLockPeer peer = new WriteLockPeer(arguments);
        String password = HexFormat.of().formatHex(peer.zooKeeper.getSessionPasswd());
        System.out.println("ready " + peer.zooKeeper.getSessionId() + " " + password);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null && !line.equals("quit"); ) {
            String[] words = line.split(" ");
            if (words[0].equals("stop")) {
                peer.isStopped = true;
            } else {
                peer.owner.execute(() -> peer.guarded(words));
            }
        }
        if (peer.lock != null) {
            peer.lock.close();
        }
        peer.zooKeeper.close();
        System.out.println("bye");
        System.exit(0);
    }

    private void guarded(String[] words) {
        try {
            obey(words);
        } catch (Throwable error) {
            System.out.println("error " + String.valueOf(error).replace('\n', ' '));
        }
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire" -> {
                await(words[2]);
                System.out.println("acquired " + System.nanoTime() + " " + describe());
            }
            case "release" -> {
                System.out.println("released " + System.nanoTime());
                unlock();
            }
            case "hammer" -> System.out.println("done " + hammer(words[2], Integer.parseInt(words[3])));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** How many acquires failed. */
    private int hammer(String path, int rounds) throws Exception {
        int failures = 0;
        for (int round = 0; round < rounds && !isStopped; ) {
            try {
                once(path);
                round++;
            } catch (KeeperException.SessionExpiredException expired) {
                failures++;
                connectAgain();
            }
        }
        try {
            if (lock != null) {
                leave(path);
            }
        } catch (KeeperException.SessionExpiredException expired) {
            connectAgain();
        }
        return failures;
    }

    // A server that starts may leave a connection open that it never answers (ZOOKEEPER-5051), and ZooKeeper's client
    // waits on it for as long as its session lasts. Whatever it had went with the session.
    private void connectAgain() throws Exception {
        if (lock != null) {
            lock.close();
            lock = null;
        }
        zooKeeper.close();
        connect();
    }

    private void once(String path) throws Exception {
        await(path);
        long from = System.nanoTime();
        String node = describe();
        long to = System.nanoTime();
        unlock();
        System.out.println("hold write " + from + " " + to + " " + node + " " + to + " 0");
    }

    // The recipe sets no watch on a predecessor that vanishes meanwhile, and then nobody wakes it.
    private void await(String path) throws Exception {
        while (!isLocked(path)) {
            acquired.tryAcquire(1, TimeUnit.SECONDS);
        }
        acquired.drainPermits();
    }

    private boolean isLocked(String path) throws Exception {
        if (lock == null) {
            lock = new WriteLock(zooKeeper, path, ZooDefs.Ids.OPEN_ACL_UNSAFE, new LockListener() {
                @Override
                public void lockAcquired() {
                    acquired.release();
                }

                @Override
                public void lockReleased() {}
            });
        }
        try {
            if (lock.lock() && lock.isOwner()) {
                return true;
            }
        } catch (KeeperException.ConnectionLossException error) {
            return false;
        }
        // A znode whose reply was lost is found again, but the recipe keeps its bare name as the id, which is never equal
        // to the owner's path: it would stand at the head of the queue for ever.
        String name = lock.getId();
        if (name != null && !name.startsWith("/")) {
            leave(path);
        }
        return false;
    }

    // A late event makes the recipe queue again by itself, but for a closed lock; one that is being handled holds the
    // lock's monitor.
    private void leave(String path) throws Exception {
        lock.close();
        String name;
        synchronized (lock) {
            name = lock.getId();
        }
        lock = null;
        if (name != null) {
            delete(name.startsWith("/") ? name : path + "/" + name);
        }
    }

    // The recipe forgets a znode that it could not delete, and takes it for its own the next time.
    private void unlock() throws Exception {
        String node = lock.getId();
        try {
            lock.unlock();
        } catch (RuntimeException error) {
            delete(node);
        }
    }

    private void delete(String node) throws Exception {
        persistently(() -> {
            try {
                zooKeeper.delete(node, -1);
            } catch (KeeperException.NoNodeException gone) {
                // As it should be.
            }
            return null;
        });
    }

    private static <T> T persistently(Callable<T> operation) throws Exception {
        while (true) {
            try {
                return operation.call();
            } catch (KeeperException.ConnectionLossException error) {
                Thread.sleep(50);
            }
        }
    }

    private String describe() throws Exception {
        Stat stat = persistently(() -> zooKeeper.exists(lock.getId(), false));
        String found = stat == null ? "0 0" : stat.getCzxid() + " " + stat.getEphemeralOwner();
        return lock.getId() + " " + found + " " + zooKeeper.getSessionId();
    }
}
