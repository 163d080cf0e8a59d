//! What people get wrong, and the words that tell them so: for the library and for `zklock` alike.

/// Which servers, which lock, and what is said.
pub(crate) struct Wrong {
    /// `None`: servers in order.
    pub(crate) servers: Option<&'static str>,
    pub(crate) path: &'static str,
    pub(crate) words: &'static [&'static str],
}

pub(crate) const WRONG: [Wrong; 9] = [
    Wrong { servers: Some("zk.invalid:2181"), path: "/x", words: &["no connection", "zk.invalid: cannot be resolved"] },
    Wrong { servers: Some("127.0.0.1:1"), path: "/x", words: &["no connection", "127.0.0.1:1: Connection refused"] },
    Wrong { servers: Some("zk1:2181/a,zk2:2181"), path: "/x", words: &["zk1:2181/a,zk2:2181", "a chroot stands once"] },
    Wrong { servers: Some(""), path: "/x", words: &["connect_string"] },
    Wrong { servers: Some("zk1:70000"), path: "/x", words: &["zk1:70000", "port"] },
    Wrong { servers: Some("zk1:2181,"), path: "/x", words: &["zk1:2181,"] },
    Wrong { servers: None, path: "x", words: &["\"x\"", "starts with '/'"] },
    Wrong { servers: None, path: "/", words: &["\"/\"", "a directory of its own"] },
    Wrong { servers: None, path: "/a//b", words: &["\"/a//b\""] },
];
