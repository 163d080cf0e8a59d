import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;

/** A candidate of Curator's leader recipes, driven by lines: see README.md. */
public final class LeaderPeer {
    private interface Candidate {
        /** Gives leadership up and queues again, behind all others. */
        void resign() throws Exception;

        Collection<Participant> participants() throws Exception;
    }

    private final CuratorFramework client;
    private final String id;
    private Candidate candidate;

    private LeaderPeer(CuratorFramework client, String id) {
        this.client = client;
        this.id = id;
    }

    // CONNECT NAMESPACE SESSION-MILLISECONDS ID
    public static void main(String[] arguments) throws Exception {
        CuratorFrameworkFactory.Builder builder = CuratorFrameworkFactory.builder()
                .connectString(arguments[0])
                .namespace(arguments[1])
                .sessionTimeoutMs(Integer.parseInt(arguments[2]))
                .connectionTimeoutMs(10_000)
                .retryPolicy(new RetryNTimes(100, 100));
        if (Boolean.getBoolean("peer.creatorOnly")) {
            builder.aclProvider(creatorOnly());
        }
        CuratorFramework client = builder.build();
        client.start();
        if (!client.blockUntilConnected(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection");
        }
        ZooKeeper zooKeeper = client.getZookeeperClient().getZooKeeper();
        say("ready " + zooKeeper.getSessionId() + " " + HexFormat.of().formatHex(zooKeeper.getSessionPasswd()));
        new LeaderPeer(client, arguments[3]).listen();
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

    private void listen() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null && !line.equals("quit"); ) {
            try {
                obey(line.split(" "));
            } catch (Throwable error) {
                say("error " + String.valueOf(error).replace('\n', ' '));
            }
        }
        client.close();
        say("bye");
        System.exit(0);
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "latch" -> candidate = new Latch(words[1]);
            case "selector" -> candidate = new Selector(words[1]);
            case "resign" -> candidate.resign();
            case "participants" -> {
                List<String> seen = new ArrayList<>();
                for (Participant participant : candidate.participants()) {
                    seen.add(participant.getId() + (participant.isLeader() ? "*" : ""));
                }
                say("participants " + String.join(" ", seen));
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private final class Latch implements Candidate, LeaderLatchListener {
        private final String path;
        private LeaderLatch latch;
        private boolean leads;

        Latch(String path) throws Exception {
            this.path = path;
            join();
        }

        private void join() throws Exception {
            latch = new LeaderLatch(client, path, id, LeaderLatch.CloseMode.NOTIFY_LEADER);
            latch.addListener(this);
            latch.start();
        }

        @Override
        public synchronized void isLeader() {
            leads = true;
            say("leads " + System.nanoTime());
        }

        @Override
        public synchronized void notLeader() {
            if (leads) {
                say("ends " + System.nanoTime());
            }
            leads = false;
        }

        // Curator deletes the znode first, and tells afterwards.
        @Override
        public void resign() throws Exception {
            notLeader();
            latch.close();
            join();
        }

        @Override
        public Collection<Participant> participants() throws Exception {
            return latch.getParticipants();
        }
    }

    private final class Selector extends LeaderSelectorListenerAdapter implements Candidate {
        private final Semaphore resigned = new Semaphore(0);
        private final LeaderSelector selector;

        Selector(String path) {
            selector = new LeaderSelector(client, path, this);
            selector.setId(id);
            selector.autoRequeue();
            selector.start();
        }

        @Override
        public void takeLeadership(CuratorFramework client) throws Exception {
            resigned.drainPermits();
            say("leads " + System.nanoTime());
            try {
                resigned.acquire();
            } finally {
                say("ends " + System.nanoTime());
            }
        }

        @Override
        public void resign() {
            resigned.release();
        }

        @Override
        public Collection<Participant> participants() throws Exception {
            return selector.getParticipants();
        }
    }
}
