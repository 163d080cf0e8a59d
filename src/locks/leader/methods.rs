//! The methods that both leader recipes share.

/// The getters of a leader recipe with `has_leadership()`: `$state` and `$internals` are those of `$this` recipe.
macro_rules! leader_methods {
    ($leader:ident, |$this:ident| $state:expr, $internals:expr) => {
        impl $leader {
            /// The stage of its life.
            #[must_use]
            pub fn state(&self) -> LeaderState {
                let $this = self;
                $state.lock().life
            }

            /// The directory in which it queues.
            #[must_use]
            pub fn path(&self) -> &str {
                let $this = self;
                $internals.base_path()
            }

            /// All participants in the queue, in any language, the leader first; empty if there are none. Two round
            /// trips. Java: `getParticipants`.
            ///
            /// For an operator's view: the first one may not know it yet, and the list may have changed by now.
            ///
            /// # Errors
            /// As [every operation on a znode](crate::operations#errors).
            pub fn participants(&self) -> Result<Vec<$crate::locks::leader::participant::Participant>> {
                let $this = self;
                $crate::locks::leader::participant::Participant::all($internals.client(), self.path())
            }

            /// The first of the participants; `None` if nobody queues. Java: `getLeader`.
            ///
            /// # Errors
            /// As [every operation on a znode](crate::operations#errors).
            pub fn leader(&self) -> Result<Option<$crate::locks::leader::participant::Participant>> {
                Ok(self.participants()?.into_iter().next())
            }
        }

        impl std::fmt::Debug for $leader {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($leader))
                    .field("path", &self.path())
                    .field("state", &self.state())
                    .field("has_leadership", &self.has_leadership())
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(super) use leader_methods;
