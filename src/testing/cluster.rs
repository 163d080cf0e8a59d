//! Several ZooKeeper servers that form a quorum.

use std::{
    fs, io, thread,
    time::{Duration, Instant},
};

use super::{
    builder::TestingServerBuilder,
    error::TestingError,
    four_letter_word,
    port::ReservedPort,
    proxy::{FaultProxy, connection::Direction},
    reconfiguration::reconfigure,
    server::TestingServer,
};

/// How long the servers may take to elect a leader and serve. They take about 1 s; this is for machines under load.
const START_TIMEOUT: Duration = Duration::from_secs(120);

const POLL: Duration = Duration::from_millis(20);

/// Configures a [`TestingCluster`].
///
/// ```
/// use std::time::Duration;
/// use curator_locks::testing::TestingCluster;
///
/// let cluster = TestingCluster::builder(3)
///     .tick_time(Duration::from_millis(200))
///     .init_limit(20)
///     .sync_limit(10)
///     .configure(|server| server.jvm_option("-Xmx128m"))
///     .observers(0)
///     .severable(true)
///     .start()?;
/// assert_eq!((cluster.connect_string().split(',').count(), cluster.server_of(17)), (3, None)); // no such session
///
/// let leader = cluster.wait_for_leader(Duration::from_secs(60))?;
/// cluster.isolate(leader)?; // from the other servers, both ways; `sever` cuts and `sever_way` cuts one way
/// cluster.mend(leader)?;
/// cluster.kill_all()?; // or `stop_all`
/// cluster.restart_all()?;
/// cluster.wait_until_serving(Duration::from_secs(60))?;
/// # Ok::<(), curator_locks::testing::TestingError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct TestingClusterBuilder {
    size: usize,
    observers: usize,
    spares: usize,
    server: TestingServerBuilder,
    severable: bool,
}

impl TestingClusterBuilder {
    /// The servers' tick. Defaults to that of [`TestingServerBuilder`].
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.server = self.server.tick_time(tick);
        self
    }

    /// How many ticks a server may take to find and follow the leader. Defaults to 10.
    pub fn init_limit(self, ticks: u32) -> Self {
        self.configure(|server| server.property("initLimit", ticks.to_string()))
    }

    /// How many ticks a follower may be out of touch with the leader before either gives up on the other. Defaults to
    /// 5.
    pub fn sync_limit(self, ticks: u32) -> Self {
        self.configure(|server| server.property("syncLimit", ticks.to_string()))
    }

    /// Configures every server further. Set no data directory: the servers would share it.
    pub fn configure(mut self, how: impl FnOnce(TestingServerBuilder) -> TestingServerBuilder) -> Self {
        self.server = how(self.server);
        self
    }

    /// Adds this many observers behind the servers that vote. Defaults to 0.
    pub fn observers(mut self, count: usize) -> Self {
        self.observers = count;
        self
    }

    /// Lets the ensemble change while it runs, and prepares this many servers that do not belong to it yet: see
    /// [`TestingCluster::reconfigure`]. Defaults to an ensemble that stays as it is.
    pub fn spares(mut self, count: usize) -> Self {
        self.spares = count;
        self
    }

    /// Lets the servers talk through proxies, for [`TestingCluster::sever`] and [`TestingCluster::isolate`]. Defaults
    /// to no.
    pub fn severable(mut self, on: bool) -> Self {
        self.severable = on;
        self
    }

    /// Starts the servers, and waits until all of them serve.
    ///
    /// # Errors
    /// As [`TestingServerBuilder::start`].
    pub fn start(self) -> Result<TestingCluster, TestingError> {
        let members = self.size + self.observers;
        let size = members + self.spares;
        let clients = (0..size).map(|_| ReservedPort::new()).collect::<io::Result<Vec<_>>>();
        let clients = clients.map_err(TestingError::io("no free ports"))?;
        let peers = (0..size).map(|_| Ok([ReservedPort::new()?, ReservedPort::new()?])).collect::<io::Result<Vec<_>>>();
        let peers = peers.map_err(TestingError::io("no free ports"))?;
        let mut links = Vec::new();
        let mut builders = Vec::new();
        for index in 0..size {
            let mut builder = self.server.clone();
            if (self.size..members).contains(&index) {
                builder = builder.property("peerType", "observer");
            }
            if self.spares > 0 {
                let properties = [("reconfigEnabled", "true"), ("standaloneEnabled", "false"), ("skipACL", "yes")];
                builder = properties.into_iter().fold(builder, |builder, (key, value)| builder.property(key, value));
            }
            for (other, (peer, client)) in peers.iter().zip(&clients).enumerate() {
                // One that joins later knows those that were there, and itself.
                if other >= members && other != index {
                    continue;
                }
                let mut ports = peer.each_ref().map(ReservedPort::number);
                if self.severable && other != index {
                    let [quorum, election] = peer.each_ref().map(|port| FaultProxy::start_opaque(port.address()));
                    let link = QuorumLink { from: index, to: other, quorum: quorum?, election: election? };
                    ports = [link.quorum.port(), link.election.port()];
                    links.push(link);
                }
                let role = if (self.size..members).contains(&other) { "observer" } else { "participant" };
                let mut address = format!("127.0.0.1:{}:{}:{role}", ports[0], ports[1]);
                if self.spares > 0 {
                    address = format!("{address};{}", client.address());
                }
                builder = builder.property(format!("server.{}", other + 1), address);
            }
            builders.push(builder);
        }
        let servers = builders.into_iter().zip(clients).enumerate();
        let servers =
            servers.map(|(index, (builder, port))| prepare(builder, index, port)).collect::<Result<_, _>>()?;
        let cluster = TestingCluster { servers, members, links, peers };
        cluster.restart_all()?;
        Ok(cluster)
    }
}

/// Writes the server's files, with its number among them.
fn prepare(builder: TestingServerBuilder, index: usize, port: ReservedPort) -> Result<TestingServer, TestingError> {
    let server = TestingServer::prepare(builder, port)?;
    let number = server.data_directory().join("myid");
    fs::write(number, (index + 1).to_string()).map_err(TestingError::io("cannot write myid"))?;
    Ok(server)
}

/// The way from one server to another.
#[derive(Debug)]
struct QuorumLink {
    from: usize,
    to: usize,
    /// From a follower to its leader.
    quorum: FaultProxy,
    election: FaultProxy,
}

/// Real ZooKeeper servers that form a quorum on 127.0.0.1. What holds for a [`TestingServer`] holds for each of them.
///
/// Servers are named by their index, from 0.
///
/// ```
/// use std::time::Duration;
///
/// use curator_locks::testing::TestingCluster;
///
/// let cluster = TestingCluster::start(3)?;
/// let leader = cluster.wait_for_leader(Duration::from_secs(60))?;
/// cluster.servers()[leader].kill()?;
/// assert_ne!(cluster.wait_for_leader(Duration::from_secs(60))?, leader);
/// # Ok::<(), curator_locks::testing::TestingError>(())
/// ```
#[derive(Debug)]
pub struct TestingCluster {
    servers: Vec<TestingServer>,
    /// How many of them belong to the ensemble from the begin.
    members: usize,
    links: Vec<QuorumLink>,
    /// The two ports of each server at which it meets the others, for its quorum and for elections.
    peers: Vec<[ReservedPort; 2]>,
}

impl TestingCluster {
    /// Starts this many servers with the defaults of [`TestingClusterBuilder`], and waits until all of them serve.
    ///
    /// # Errors
    /// As [`TestingServerBuilder::start`].
    pub fn start(size: usize) -> Result<TestingCluster, TestingError> {
        TestingCluster::builder(size).start()
    }

    /// Configures a cluster of this many servers before it is started.
    pub fn builder(size: usize) -> TestingClusterBuilder {
        TestingClusterBuilder { size, observers: 0, spares: 0, server: TestingServer::builder(), severable: false }
    }

    /// The connect string for clients: all servers that belong to the ensemble from the begin.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let servers: Vec<String> = self.first_members().iter().map(TestingServer::connect_string).collect();
        servers.join(",")
    }

    /// The servers, to be killed, paused and restarted one by one. Note that [`TestingServer::restart`] waits until the
    /// server serves, for which a majority must run; [`TestingServer::launch`] does not wait.
    #[must_use]
    pub fn servers(&self) -> &[TestingServer] {
        &self.servers
    }

    fn first_members(&self) -> &[TestingServer] {
        self.servers.get(..self.members).unwrap_or_default()
    }

    /// Starts the servers that are to join the ensemble, waits until they serve, and takes them in; those that leave it go
    /// on to run, and to serve. Java: `ZooKeeperAdmin.reconfigure`.
    ///
    /// # Errors
    /// If a server does not start, or [`TestingError::Refused`] if the ensemble does not change: it was built without
    /// [`spares`](TestingClusterBuilder::spares), for instance.
    ///
    /// ```
    /// use curator_locks::testing::TestingCluster;
    ///
    /// let cluster = TestingCluster::builder(3).spares(1).start()?;
    /// cluster.reconfigure(&[3], &[0])?; // the fourth server in the place of the first
    /// cluster.servers()[0].stop()?;
    /// # Ok::<(), curator_locks::testing::TestingError>(())
    /// ```
    pub fn reconfigure(&self, joining: &[usize], leaving: &[usize]) -> Result<(), TestingError> {
        let joining: Vec<_> = joining.iter().filter_map(|&index| Some((index, self.servers.get(index)?))).collect();
        joining.iter().try_for_each(|(_, server)| server.launch())?;
        joining.iter().try_for_each(|(_, server)| server.wait_until_serving(START_TIMEOUT))?;
        let lines: Vec<String> = joining.iter().filter_map(|(index, server)| self.line(*index, server)).collect();
        let numbers: Vec<String> = leaving.iter().map(|index| (index + 1).to_string()).collect();
        let stays = |(index, server): &(usize, &TestingServer)| !leaving.contains(index) && server.is_running();
        let Some((_, server)) = self.servers.iter().enumerate().find(stays) else {
            return Err(TestingError::Refused("no server of the ensemble would be left".into()));
        };
        reconfigure(&server.connect_string(), &lines, &numbers)
    }

    /// The role of a server among the others.
    fn line(&self, index: usize, server: &TestingServer) -> Option<String> {
        let [quorum, election] = self.peers.get(index)?.each_ref().map(ReservedPort::number);
        Some(format!("server.{}=127.0.0.1:{quorum}:{election}:participant;{}", index + 1, server.address()))
    }

    /// Stops all servers; their data stays.
    ///
    /// # Errors
    /// If a process cannot be ended.
    pub fn stop_all(&self) -> Result<(), TestingError> {
        self.servers.iter().try_for_each(TestingServer::stop)
    }

    /// Kills all servers; their data stays.
    ///
    /// # Errors
    /// If a process cannot be killed.
    pub fn kill_all(&self) -> Result<(), TestingError> {
        self.servers.iter().try_for_each(TestingServer::kill)
    }

    /// Stops all servers, starts those that belong to the ensemble from the begin on the same ports and data, and waits until
    /// they serve.
    ///
    /// # Errors
    /// If a process cannot be ended, or as [`TestingServerBuilder::start`].
    pub fn restart_all(&self) -> Result<(), TestingError> {
        self.stop_all()?;
        self.first_members().iter().try_for_each(TestingServer::launch)?;
        self.wait_until_serving(START_TIMEOUT)
    }

    /// Waits until all servers serve that belong to the ensemble from the begin.
    ///
    /// # Errors
    /// If a server ends or does not serve in time, with the end of its log.
    pub fn wait_until_serving(&self, timeout: Duration) -> Result<(), TestingError> {
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        self.first_members().iter().try_for_each(|server| server.wait_until_serving(left()))
    }

    /// The index of the server that says it is the leader, if one does. A server that is paused says nothing.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.find("mntr", |answer| answer.lines().any(|line| line == "zk_server_state\tleader"))
    }

    /// Waits until a server says that it is the leader; gives its index.
    ///
    /// # Errors
    /// [`TestingError::Timeout`] if none does in time.
    pub fn wait_for_leader(&self, timeout: Duration) -> Result<usize, TestingError> {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(leader) = self.leader() {
                return Ok(leader);
            }
            thread::sleep(POLL);
        }
        Err(TestingError::Timeout { what: "the election of a leader".into(), after: timeout })
    }

    /// The index of the server that the session has its connection with, if any. A server that is paused says nothing.
    #[must_use]
    pub fn server_of(&self, session_id: i64) -> Option<usize> {
        let field = format!(",sid=0x{session_id:x},");
        self.find("cons", |answer| answer.contains(&field))
    }

    /// Cuts a follower off from the leader, but not from its clients: nothing goes over its link to the leader, and nobody
    /// closes it, until [`mend`](Self::mend). Both sides notice by the sync limit. A leader that is severed goes on to answer
    /// by itself until then, and may be elected again, as the servers still hold their elections over other links: to
    /// replace it, pause it.
    ///
    /// # Errors
    /// [`TestingError::Refused`] if the cluster was not built [`severable`](TestingClusterBuilder::severable).
    pub fn sever(&self, index: usize) -> Result<(), TestingError> {
        self.sever_way(index, Direction::Both)
    }

    /// As [`sever`](Self::sever), but only one way: towards the leader ([`Direction::ToServer`]), so that the follower
    /// hears and is not heard, or from it.
    ///
    /// # Errors
    /// As [`sever`](Self::sever).
    pub fn sever_way(&self, index: usize, direction: Direction) -> Result<(), TestingError> {
        if self.links.is_empty() {
            return Err(TestingError::Refused("the cluster was not built severable".into()));
        }
        self.links_of(index).for_each(|link| link.quorum.black_hole(direction));
        Ok(())
    }

    /// Restarts a server where it hears of no other one, elections included, until [`mend`](Self::mend). It finds no
    /// leader, and serves nobody, or only readers if it is configured so; this does not wait for that.
    ///
    /// # Errors
    /// As [`sever`](Self::sever), and as [`TestingServer::launch`].
    pub fn isolate(&self, index: usize) -> Result<(), TestingError> {
        self.sever(index)?;
        self.links_of(index).for_each(|link| link.election.black_hole(Direction::Both));
        // Servers tell each other their addresses and connect past the proxies; those connections end with the process.
        self.servers.get(index).map_or(Ok(()), TestingServer::launch)
    }

    /// Ends what [`sever`](Self::sever) and [`isolate`](Self::isolate) did.
    ///
    /// # Errors
    /// If a proxy cannot listen.
    pub fn mend(&self, index: usize) -> Result<(), TestingError> {
        self.links_of(index).try_for_each(|link| link.quorum.pass().and_then(|()| link.election.pass()))
    }

    fn links_of(&self, index: usize) -> impl Iterator<Item = &QuorumLink> {
        self.links.iter().filter(move |link| link.from == index || link.to == index)
    }

    /// The first server whose answer to the four letter word is accepted.
    fn find(&self, word: &str, accepts: impl Fn(&str) -> bool) -> Option<usize> {
        let ask = |server: &TestingServer| four_letter_word::ask(server.address(), word, Duration::from_millis(500));
        let answers = |server: &TestingServer| server.is_running() && ask(server).is_ok_and(|answer| accepts(&answer));
        self.servers.iter().position(answers)
    }
}
