//! Chapters: what to read before, and beside, the pages of the types.

use std::error::Error;

use crate::framework::client::core::CuratorFramework;

/// A chapter, whose links go to what stands at the crate's root, and its pictures.
macro_rules! chapter {
    ($name:ident, $file:literal $(, $picture:literal)*) => {
        pub mod $name {
            #![doc = include_str!($file)]
            $(#![doc = include_str!($picture)])*
            #[allow(unused_imports, reason = "the chapter's links")]
            use crate::*;
        }
    };
}

chapter!(
    guide,
    "docs/guide.md",
    "../docs/pictures/queue.svg",
    "../docs/pictures/tenure.svg",
    "../docs/pictures/session.svg"
);
chapter!(guarantees, "docs/guarantees.md");
chapter!(simulator, "docs/simulator.md");
chapter!(safety, "docs/safety.md");
chapter!(sharing, "docs/sharing.md");
chapter!(operations, "docs/operations.md");
chapter!(porting, "docs/porting.md");

/// Where `ci/test` has one server for all examples of the documentation; each of them is a process.
#[cfg(feature = "testing")]
const SERVER: &str = "CURATOR_LOCKS_EXAMPLES_SERVER";

/// Runs an example of the documentation with a client of a server of its own, or in a chroot of its own at the one that all share.
/// Without the feature `testing` it is only compiled.
#[doc(hidden)]
pub fn example(example: impl FnOnce(&CuratorFramework) -> Result<(), Box<dyn Error>>) {
    #[cfg(feature = "testing")]
    {
        use crate::framework::{client::builder::CuratorFrameworkFactory, config::retry::RetryOneTime};

        let connect = |servers: &str| {
            let retry = RetryOneTime::new(std::time::Duration::from_millis(100));
            let client = CuratorFrameworkFactory::new_client(servers, retry)?;
            client.start().map(|()| client)
        };
        let run = || {
            if let Ok(servers) = std::env::var(SERVER) {
                let chroot = format!("/{}", crate::base::random::uuid());
                connect(&servers)?.create().for_path(&chroot)?;
                return example(&connect(&(servers + &chroot))?);
            }
            let server = crate::testing::TestingServer::start()?;
            example(&connect(&server.connect_string())?)
        };
        let result = run();
        assert!(result.is_ok(), "{result:?}");
    }
    #[cfg(not(feature = "testing"))]
    drop(example);
}

/// The README's examples run.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
