//! Who subscribes to the changes of one hold.

use std::{collections::BTreeMap, mem};

use super::{
    changes::HoldState,
    deadlines::{Deadlines, Ear},
};
use crate::{
    base::telemetry::spans::HoldSpan, framework::events::dispatch::Dispatcher, session::wait::cancel::CancelToken,
};

/// Who subscribes, each with the state that it heard last. All count as having heard the state in which a hold begins.
#[derive(Default)]
pub(super) struct Subscribers {
    pub(super) states: BTreeMap<u64, (HoldState, Ear<HoldState>)>,
    /// Cancelled, in this order, as soon as the lock may be another's.
    pub(super) tokens: Vec<CancelToken>,
    /// Somebody has subscribed at some time. The thread plans looks from then on, so that whoever subscribes again and
    /// again need not wake it each time.
    pub(super) was_asked: bool,
    next: u64,
    /// Who hears some time before the hold stops being certain.
    pub(super) deadlines: Deadlines,
    /// Ends with the hold.
    pub(super) span: Option<HoldSpan>,
}

impl Subscribers {
    pub(super) fn next_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The caller drops it without the lock: it may own anything of the caller's.
    pub(super) fn remove(&mut self, id: u64) -> impl Sized + use<> {
        (self.states.remove(&id), self.deadlines.remove(id))
    }

    pub(super) fn awaits(&self, state: HoldState) -> bool {
        self.states.values().any(|(told, _)| *told != state)
    }

    /// Hands the state over to all that have not been told. To be called under the lock only: the order of the calls is the
    /// order in which all are told.
    pub(super) fn tell(&mut self, state: HoldState, dispatcher: &Dispatcher) {
        for (told, ear) in self.states.values_mut() {
            if mem::replace(told, state) != state {
                ear.tell(state, dispatcher);
            }
        }
    }
}
