//! Chapters: what to read before, and beside, the pages of the types.

/// A chapter, whose links go to what stands at the crate's root.
macro_rules! chapter {
    ($name:ident, $file:literal) => {
        pub mod $name {
            #![doc = include_str!($file)]
            #[allow(unused_imports, reason = "the chapter's links")]
            use crate::*;
        }
    };
}

chapter!(guide, "../docs/guide.md");
chapter!(guarantees, "../docs/guarantees.md");
chapter!(sharing, "../docs/sharing.md");
chapter!(operations, "../docs/operations.md");
chapter!(porting, "../docs/porting.md");

/// The README's examples run.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
