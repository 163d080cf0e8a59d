//! A proxy before the servers, under the names that `testing` has for it: links of its own, and faults of requests.

use std::time::Duration;

use super::{
    network::faults::{Cut, Injected, Links, Logged, Lost, RequestFault, Way},
    process::Process,
    world::World,
};
use crate::{
    base::{clock::now, sim::thread::sleep},
    proto::op as codes,
};

const POLL: Duration = Duration::from_millis(5);

/// The operation codes that cases name.
pub(crate) mod op {
    pub(crate) use crate::proto::op::{
        CREATE, DELETE, EXISTS, GET_CHILDREN, GET_CHILDREN2 as GET_CHILDREN_2, GET_DATA, MULTI, MULTI_READ, SYNC,
    };
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
    Both,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    CutInsteadOfRequest,
    CutAfterRequest,
    HoldRequest,
    CutInsteadOfReply,
    HoldReply,
    Refuse(i32),
}

impl From<Fault> for Lost {
    fn from(fault: Fault) -> Lost {
        match fault {
            Fault::CutInsteadOfRequest => Lost::RequestAndCut,
            Fault::CutAfterRequest => Lost::AfterRequestCut,
            Fault::HoldRequest => Lost::RequestHeld,
            Fault::CutInsteadOfReply => Lost::ReplyAndCut,
            Fault::HoldReply => Lost::ReplyHeld,
            Fault::Refuse(code) => Lost::Refused(code),
        }
    }
}

type Paths = Box<dyn Fn(&str) -> bool + Send>;

/// Which requests a fault is for.
pub(crate) struct RequestMatch {
    ops: Option<Vec<i32>>,
    path: Option<Paths>,
    skip: u64,
    times: u64,
}

impl RequestMatch {
    pub(crate) fn any() -> RequestMatch {
        RequestMatch { ops: None, path: None, skip: 0, times: 1 }
    }

    pub(crate) fn op(op: i32) -> RequestMatch {
        RequestMatch::ops([op])
    }

    pub(crate) fn ops(ops: impl IntoIterator<Item = i32>) -> RequestMatch {
        RequestMatch { ops: Some(ops.into_iter().collect()), ..RequestMatch::any() }
    }

    /// Requests that create one znode of whatever kind.
    pub(crate) fn creates() -> RequestMatch {
        RequestMatch::ops([codes::CREATE, codes::CREATE2, codes::CREATE_CONTAINER, codes::CREATE_TTL])
    }

    pub(crate) fn path(self, accepts: impl Fn(&str) -> bool + Send + 'static) -> RequestMatch {
        RequestMatch { path: Some(Box::new(accepts)), ..self }
    }

    pub(crate) fn skip(self, skip: u64) -> RequestMatch {
        RequestMatch { skip, ..self }
    }

    pub(crate) fn times(self, times: u64) -> RequestMatch {
        RequestMatch { times, ..self }
    }

    fn accepts(&self, op: i32, path: Option<&str>) -> bool {
        let is_op = self.ops.as_ref().map_or(op != codes::PING, |ops| ops.contains(&op));
        is_op && self.path.as_ref().is_none_or(|accepts| path.is_some_and(accepts))
    }
}

pub(crate) struct FaultProxy {
    world: World,
    /// Its links are those of a process that does nothing.
    process: Process,
}

impl FaultProxy {
    pub(crate) fn start(world: &World) -> FaultProxy {
        let process = world.process("a proxy");
        world.network().keep_log(process.number());
        FaultProxy { world: world.clone(), process }
    }

    pub(crate) fn connect_string(&self) -> String {
        format!("p{}-{}", self.process.number(), self.world.connect_string())
    }

    fn links(&self) -> Links {
        self.process.links()
    }

    pub(crate) fn inject(&self, requests: RequestMatch, fault: Fault) -> InjectedFault {
        let RequestMatch { skip, times, .. } = requests;
        let of_all = RequestFault { links: self.links(), op: None, skip, times, lost: fault.into() };
        let accepts = Box::new(move |op, path: Option<&str>| requests.accepts(op, path));
        let injected = self.world.network().inject_into(of_all, Some(accepts));
        InjectedFault { world: self.world.clone(), injected }
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.world.network().delay(self.links(), (!delay.is_zero()).then_some(delay..=delay));
    }

    pub(crate) fn black_hole(&self, direction: Direction) {
        let way = match direction {
            Direction::ToServer => Way::ToServer,
            Direction::ToClient => Way::ToClient,
            Direction::Both => Way::Both,
        };
        self.world.network().black_hole(self.links(), way);
    }

    pub(crate) fn pass(&self) -> Result<(), String> {
        self.world.network().pass(self.links());
        Ok(())
    }

    pub(crate) fn refuse(&self) {
        self.world.network().refuse(self.links());
    }

    pub(crate) fn cut(&self) {
        self.world.network().sever(self.links(), Cut::Fin);
    }

    pub(crate) fn reset(&self) {
        self.world.network().sever(self.links(), Cut::Reset);
    }

    pub(crate) fn connections(&self) -> u64 {
        self.world.network().connections(self.process.number())
    }

    pub(crate) fn log(&self) -> Vec<Logged> {
        self.world.network().log(self.process.number())
    }

    pub(crate) fn clear_log(&self) {
        self.world.network().forget_log(self.process.number());
    }
}

pub(crate) struct InjectedFault {
    world: World,
    injected: Injected,
}

impl InjectedFault {
    pub(crate) fn hits(&self) -> u64 {
        self.injected.hits()
    }

    pub(crate) fn release(&self) {
        self.world.network().release(&self.injected);
    }

    pub(crate) fn wait_for_hits(&self, hits: u64, longest: Duration) -> Result<(), String> {
        let deadline = now() + longest;
        while self.hits() < hits {
            if now() > deadline {
                return Err(format!("{} hits of {hits}", self.hits()));
            }
            sleep(POLL);
        }
        Ok(())
    }
}
