//! Who subscribes to the changes of one hold.

use std::{collections::BTreeMap, mem, sync::Arc};

use crossbeam_channel::Sender;

use super::{changes::HoldState, deadlines::Deadlines};
use crate::{
    base::telemetry::spans::HoldSpan, framework::events::dispatch::Dispatcher, session::wait::cancel::CancelToken,
};

/// A callback for [`HoldState`]; runs on the dispatch thread.
pub(crate) type HoldListener = Arc<dyn Fn(HoldState) + Send + Sync>;

/// Who subscribes, each with the state that it heard last. All count as having heard the state in which a hold begins.
#[derive(Default)]
pub(super) struct Subscribers {
    pub(super) channels: BTreeMap<u64, (HoldState, Sender<HoldState>)>,
    pub(super) listeners: Vec<(HoldState, HoldListener)>,
    /// Cancelled, in this order, as soon as the lock may be another's.
    pub(super) tokens: Vec<CancelToken>,
    /// Somebody has subscribed at some time. The thread plans looks from then on, so that whoever subscribes again and
    /// again need not wake it each time.
    pub(super) was_asked: bool,
    pub(super) next_channel: u64,
    /// Who hears some time before the hold stops being certain.
    pub(super) deadlines: Deadlines,
    /// Ends with the hold.
    pub(super) span: Option<HoldSpan>,
}

impl Subscribers {
    pub(super) fn awaits(&self, state: HoldState) -> bool {
        let mut told = self.channels.values().map(|(told, _)| told).chain(self.listeners.iter().map(|(told, _)| told));
        told.any(|told| *told != state)
    }

    /// Hands the state over to all that have not been told. To be called under the lock only: the order of the calls is the
    /// order in which all are told.
    pub(super) fn tell(&mut self, state: HoldState, dispatcher: &Dispatcher) {
        for (told, channel) in self.channels.values_mut() {
            if mem::replace(told, state) != state {
                // Whoever has dropped the other end is about to sign off.
                let _ = channel.send(state);
            }
        }
        for (told, listener) in &mut self.listeners {
            if mem::replace(told, state) != state {
                let listener = listener.clone();
                dispatcher.run(move || listener(state));
            }
        }
    }
}
