//! The public face that all locks share: [`lock`] is the trait and a guard for any lock, [`methods`] the methods that
//! every lock has, [`guard`] a held lock, [`revocation`] how somebody else asks for it.

pub(in crate::locks) mod guard;
pub(in crate::locks) mod lock;
pub(in crate::locks) mod methods;
pub(in crate::locks) mod revocation;
