//! `recipes.shared`.

use std::thread;

use crossbeam_channel::{Sender, unbounded};
use curator_locks::{
    ConnectionState, CuratorFramework, Error, SharedCount, SharedCountListener, SharedCountReader, SharedValue,
    SharedValueListener, SharedValueReader,
};

use crate::{
    book, member,
    support::{PATIENCE, client, expire},
};

pub(crate) fn call() {
    let client = client();
    count(&client);
    value(&client);
}

#[derive(Debug, PartialEq)]
enum Heard {
    Value(Vec<u8>),
    Count(i32),
    State(ConnectionState),
}

struct Hears(Sender<Heard>);

impl SharedCountListener for Hears {
    fn count_has_changed(&self, count: &dyn SharedCountReader, new_count: i32) {
        book("shared.SharedCountListener.countHasChanged(SharedCountReader,int)", "fn count_has_changed(&self, ..)");
        let last = member!("shared.SharedCountReader.getCount()", count.count());
        let versioned = member!("shared.SharedCountReader.getVersionedValue()", count.versioned_value());
        assert!(last >= new_count && *versioned.value() >= last, "counts grow in this test");
        let _ = self.0.send(Heard::Count(new_count));
    }

    fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) {
        book(
            "shared.SharedCountListener.stateChanged(CuratorFramework,ConnectionState)",
            "fn state_changed(&self, client, state)",
        );
        let _ = self.0.send(Heard::State(state));
    }
}

impl SharedValueListener for Hears {
    fn value_has_changed(&self, shared: &dyn SharedValueReader, new_value: &[u8]) {
        book("shared.SharedValueListener.valueHasChanged(SharedValueReader,byte[])", "fn value_has_changed(&self, ..)");
        let last = member!("shared.SharedValueReader.getValue()", shared.value());
        let versioned = member!("shared.SharedValueReader.getVersionedValue()", shared.versioned_value());
        assert!(last.as_slice() >= new_value && *versioned.value() >= last, "values grow in this test");
        let _ = self.0.send(Heard::Value(new_value.to_vec()));
    }
}

fn count(client: &CuratorFramework) {
    let count = member!(
        "shared.SharedCount.<init>(CuratorFramework,String,int)",
        SharedCount::new(client, "/count", 1).unwrap()
    );
    let unread = count.try_set_count(count.versioned_value(), 2).unwrap_err();
    assert!(member!(
        "shared.IllegalTrySetVersionException.<init>()",
        matches!(unread, Error::NotInUse { state: "not started", .. })
    ));
    let text = member!("shared.IllegalTrySetVersionException.getMessage()", unread.to_string());
    assert!(text.contains("/count"), "{text}");
    let (hear, heard) = unbounded();
    let (one, other) = (Hears(hear.clone()), Hears(hear));
    member!("shared.SharedCount.addListener(SharedCountListener)", count.add_listener(one));
    let id = member!(
        "shared.SharedCount.addListener(SharedCountListener,Executor)",
        count.add_listener_with_executor(other, |task| drop(thread::spawn(task)))
    );
    member!("shared.SharedCount.removeListener(SharedCountListener)", count.remove_listener(id));
    member!("shared.SharedCount.start()", count.start().unwrap());
    member!("shared.SharedCount.setCount(int)", count.set_count(2).unwrap());
    assert_eq!(member!("shared.SharedCount.getCount()", count.count()), 2);
    let seen = member!("shared.SharedCount.getVersionedValue()", count.versioned_value());
    assert_eq!(*member!("shared.VersionedValue.getValue()", seen.value()), 2);
    assert_eq!(member!("shared.VersionedValue.getVersion()", seen.version()), 1);
    let zxid = member!("shared.VersionedValue.getZxid()", seen.zxid());
    assert_eq!(client.check_exists().for_path("/count").unwrap().unwrap().mzxid, zxid);
    assert!(member!("shared.SharedCount.trySetCount(VersionedValue,int)", count.try_set_count(seen, 3).unwrap()));
    await_heard(&heard, &Heard::Count(3));
    expire(client);
    await_heard(&heard, &Heard::State(ConnectionState::Lost));
    await_heard(&heard, &Heard::State(ConnectionState::Reconnected));
    await_heard(&heard, &Heard::Count(3));
    member!("shared.SharedCount.close()", count.close());
}

fn await_heard(heard: &crossbeam_channel::Receiver<Heard>, wanted: &Heard) {
    while heard.recv_timeout(PATIENCE).unwrap() != *wanted {}
}

fn value(client: &CuratorFramework) {
    let value = member!(
        "shared.SharedValue.<init>(CuratorFramework,String,byte[])",
        SharedValue::new(client, "/value", "a").unwrap()
    );
    let (hear, heard) = unbounded();
    let listener = Hears(hear);
    member!("shared.SharedValue.getListenable()", value.add_listener(listener));
    let (hear, of_closure) = unbounded();
    member!(
        "shared.SharedValueReader.getListenable()",
        value.add_listener(move |value: &[u8]| hear.send(value.to_vec()).unwrap_or_default())
    );
    member!("shared.SharedValue.start()", value.start().unwrap());
    member!("shared.SharedValue.setValue(byte[])", value.set_value("b").unwrap());
    assert_eq!(member!("shared.SharedValue.getValue()", value.value()), b"b");
    let seen = member!("shared.SharedValue.getVersionedValue()", value.versioned_value());
    assert!(member!("shared.SharedValue.trySetValue(VersionedValue,byte[])", value.try_set_value(&seen, "c").unwrap()));
    await_heard(&heard, &Heard::Value(b"c".to_vec()));
    while of_closure.recv_timeout(PATIENCE).unwrap() != b"c" {}
    member!("shared.SharedValue.close()", value.close());
}
