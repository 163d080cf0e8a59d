//! `recipes.leader`.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    thread,
    time::Duration,
};

use crossbeam_channel::{Sender, unbounded};
use curator_locks::{
    CancelLeadership, CloseMode, ConnectionState, CuratorFramework, LeaderLatch, LeaderLatchListener, LeaderSelector,
    LeaderSelectorListener, LeaderState, Leadership, Participant,
};

use crate::{
    book, member,
    support::{PATIENCE, client, eventually},
};

pub(crate) fn call() {
    let client = client();
    latch(&client);
    selector(&client);
}

struct Told(Sender<bool>);

impl LeaderLatchListener for Told {
    fn is_leader(&self, _leadership: &Leadership) {
        book("leader.LeaderLatchListener.isLeader()", "fn is_leader(&self, _leadership)");
        let _ = self.0.send(true);
    }

    fn not_leader(&self) {
        book("leader.LeaderLatchListener.notLeader()", "fn not_leader(&self)");
        let _ = self.0.send(false);
    }
}

fn latch(client: &CuratorFramework) {
    let latch =
        member!("leader.LeaderLatch.<init>(CuratorFramework,String)", LeaderLatch::new(client, "/latch").unwrap());
    let latch = member!("leader.LeaderLatch.<init>(CuratorFramework,String,String)", latch.with_id("host-17"));
    let silent = member!("leader.LeaderLatch$CloseMode.SILENT", CloseMode::Silent);
    let latch = member!(
        "leader.LeaderLatch.<init>(CuratorFramework,String,String,LeaderLatch$CloseMode)",
        latch.with_close_mode(silent)
    );
    let latent = member!("leader.LeaderLatch$State.LATENT", LeaderState::Latent);
    assert_eq!(member!("leader.LeaderLatch.getState()", latch.state()), latent);
    let (tell, told) = unbounded();
    let listener = Told(tell.clone());
    member!("leader.LeaderLatch.addListener(LeaderLatchListener)", latch.add_listener(listener));
    let listener = Told(tell);
    let id = member!(
        "leader.LeaderLatch.addListener(LeaderLatchListener,Executor)",
        latch.add_listener_with_executor(listener, |task| drop(thread::spawn(task)))
    );
    member!("leader.LeaderLatch.removeListener(LeaderLatchListener)", latch.remove_listener(id));
    member!("leader.LeaderLatch.start()", latch.start().unwrap());
    assert_eq!(latch.state(), member!("leader.LeaderLatch$State.STARTED", LeaderState::Started));
    member!("leader.LeaderLatch.await()", latch.await_leadership().unwrap());
    let zero = Duration::ZERO;
    assert!(member!("leader.LeaderLatch.await(long,TimeUnit)", latch.await_leadership_timeout(zero).unwrap()));
    assert!(member!("leader.LeaderLatch.hasLeadership()", latch.has_leadership()));
    assert!(told.recv_timeout(PATIENCE).unwrap());
    assert_eq!(member!("leader.LeaderLatch.getId()", latch.id()), "host-17");
    let own = member!("leader.LeaderLatch.getOurPath()", latch.our_path());
    assert_eq!(own, member!("leader.LeaderLatch.getLastPathIsLeader()", latch.last_path_is_leader()));
    let all = member!("leader.LeaderLatch.getParticipants()", latch.participants().unwrap());
    participants(&all, &member!("leader.LeaderLatch.getLeader()", latch.leader().unwrap().unwrap()));
    let notify = member!("leader.LeaderLatch$CloseMode.NOTIFY_LEADER", CloseMode::NotifyLeader);
    member!("leader.LeaderLatch.close(LeaderLatch$CloseMode)", latch.close_with(notify).unwrap());
    assert!(!told.recv_timeout(PATIENCE).unwrap() && told.is_empty());
    assert_eq!(latch.state(), member!("leader.LeaderLatch$State.CLOSED", LeaderState::Closed));
    let other = LeaderLatch::new(client, "/latch").unwrap();
    other.start().unwrap();
    member!("leader.LeaderLatch.close()", other.close().unwrap());
}

fn participants(all: &[Participant], leader: &Participant) {
    assert_eq!(member!("leader.Participant.getId()", leader.id()), "host-17");
    assert!(member!("leader.Participant.isLeader()", leader.is_leader()));
    assert!(member!("leader.Participant.equals(Object)", all[0] == *leader));
    assert!(member!("leader.Participant.toString()", format!("{leader:?}")).contains("is_leader: true"));
    let (mut one, mut other) = (DefaultHasher::new(), DefaultHasher::new());
    member!("leader.Participant.hashCode()", leader.hash(&mut one));
    all[0].hash(&mut other);
    assert_eq!(one.finish(), other.finish());
}

struct Leads(Sender<()>);

impl LeaderSelectorListener for Leads {
    fn take_leadership(
        &self,
        client: &CuratorFramework,
        leadership: &Leadership,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        book("leader.LeaderSelectorListener.takeLeadership(CuratorFramework)", "fn take_leadership(&self, client)");
        assert!(client.is_connected());
        self.0.send(())?;
        let _ = leadership.cancelled().recv();
        Ok(())
    }

    fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) -> Result<(), CancelLeadership> {
        book(
            "leader.LeaderSelectorListener.stateChanged(CuratorFramework,ConnectionState)",
            "fn state_changed(&self, client, state)",
        );
        let given_up = member!("leader.CancelLeadershipException.<init>()", CancelLeadership);
        if state.is_connected() { Ok(()) } else { Err(given_up) }
    }
}

/// With the trait's own `state_changed`, which is Curator's adapter.
struct Adapted;

impl LeaderSelectorListener for Adapted {
    fn take_leadership(
        &self,
        _: &CuratorFramework,
        _: &Leadership,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

fn selector(client: &CuratorFramework) {
    let adapted =
        member!("leader.LeaderSelectorListenerAdapter.<init>()", |state| Adapted.state_changed(client, state));
    assert_eq!(adapted(ConnectionState::Reconnected), Ok(()));
    let suspended = member!(
        "leader.LeaderSelectorListenerAdapter.stateChanged(CuratorFramework,ConnectionState)",
        Adapted.state_changed(client, ConnectionState::Suspended)
    );
    assert_eq!(suspended, Err(CancelLeadership));

    let (lead, leads) = unbounded();
    let listener = Leads(lead.clone());
    let selector = member!(
        "leader.LeaderSelector.<init>(CuratorFramework,String,LeaderSelectorListener)",
        LeaderSelector::new(client, "/selector", listener).unwrap()
    );
    member!("leader.LeaderSelector.setId(String)", selector.set_id("host-17"));
    assert_eq!(member!("leader.LeaderSelector.getId()", selector.id()), "host-17");
    member!("leader.LeaderSelector.start()", selector.start().unwrap());
    leads.recv_timeout(PATIENCE).unwrap();
    assert!(member!("leader.LeaderSelector.hasLeadership()", selector.has_leadership()));
    assert!(!member!("leader.LeaderSelector.requeue()", selector.requeue().unwrap()), "it leads");
    let all = member!("leader.LeaderSelector.getParticipants()", selector.participants().unwrap());
    participants(&all, &member!("leader.LeaderSelector.getLeader()", selector.leader().unwrap().unwrap()));
    // The listener is told of connection states.
    crate::support::expire(client);
    eventually("the listener returns, and can be queued again", || selector.requeue().unwrap());
    leads.recv_timeout(PATIENCE).unwrap();
    member!("leader.LeaderSelector.autoRequeue()", selector.auto_requeue());
    member!("leader.LeaderSelector.interruptLeadership()", selector.interrupt_leadership());
    leads.recv_timeout(PATIENCE).unwrap();
    member!("leader.LeaderSelector.close()", selector.close().unwrap());

    let spawn = |task: Box<dyn FnOnce() + Send>| drop(thread::spawn(task));
    let [one, other] = [Leads(lead.clone()), Leads(lead)];
    let with_executor = member!(
        "leader.LeaderSelector.<init>(CuratorFramework,String,ExecutorService,LeaderSelectorListener)",
        LeaderSelector::with_executor(client, "/selector", spawn, one).unwrap()
    );
    with_executor.start().unwrap();
    leads.recv_timeout(PATIENCE).unwrap();
    member!(
        "leader.LeaderSelector.<init>(CuratorFramework,String,CloseableExecutorService,LeaderSelectorListener)",
        LeaderSelector::with_executor(client, "/selector", spawn, other).unwrap()
    );
}
