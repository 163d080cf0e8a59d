//! What all locks share in their public face.
//!
//! [`lock`] is the trait and what stands for any lock, [`methods`] the methods that every lock has, [`options`] what an
//! acquire may ask for, [`observed`] how operators see one. [`guard`] and [`holds`] are what a holder has in hand,
//! [`fencing`] what storage asks for, and
//! [`revocation`] how somebody else asks for the lock.

pub(in crate::locks) mod fencing;
pub(in crate::locks) mod guard;
pub(in crate::locks) mod holds;
pub(in crate::locks) mod lock;
pub(in crate::locks) mod methods;
pub(in crate::locks) mod observed;
pub(in crate::locks) mod options;
pub(in crate::locks) mod revocation;
