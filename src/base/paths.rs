//! Paths: their validity, their parts, and how the caller's view maps to the server's.
//!
//! The caller sees paths inside the namespace, the server sees them behind chroot and namespace. The two are different
//! types here, because a prefix that is applied twice deletes or locks another node than was meant.

use std::fmt;

use crate::error::{Error, Result};

/// Checks a path by ZooKeeper's rules. Java: `PathUtils.validatePath`.
///
/// # Errors
/// [`Error::InvalidPath`] with the path and the rule that it breaks.
pub(crate) fn validate_path(path: &str) -> Result<()> {
    broken_rule(path).map_or(Ok(()), |rule| Err(Error::InvalidPath { path: path.to_owned(), rule }))
}

fn broken_rule(path: &str) -> Option<String> {
    let Some(relative) = path.strip_prefix('/') else {
        return Some(if path.is_empty() { "a path is not empty" } else { "a path starts with '/'" }.to_owned());
    };
    if relative.is_empty() {
        return None;
    }
    if relative.ends_with('/') {
        return Some("a path does not end with '/'".to_owned());
    }
    if let Some((at, bad)) = path.char_indices().find(|&(_, c)| is_forbidden(c)) {
        return Some(format!("the character {bad:?} at byte {at} is not allowed"));
    }
    relative.split('/').find_map(|name| match name {
        "" => Some("no name between two '/' is empty".to_owned()),
        "." | ".." => Some(format!("the name {name:?} is not allowed: paths are absolute")),
        _ => None,
    })
}

/// ZooKeeper looks at UTF-16 units: a character outside the Basic Multilingual Plane is a surrogate pair there, and refused.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The last name of a path; empty for the root.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// A path as the server sees it: chroot and namespace in front.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ServerPath(String);

impl ServerPath {
    /// Takes a path that a server sent.
    pub(crate) fn from_server(path: impl Into<String>) -> ServerPath {
        ServerPath(path.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    /// The path above; `None` for the server's root.
    pub(crate) fn parent(&self) -> Option<ServerPath> {
        match self.0.rsplit_once('/')? {
            ("", "") => None,
            ("", _) => Some(ServerPath::from_server("/")),
            (parent, _) => Some(ServerPath::from_server(parent)),
        }
    }

    /// The last name; empty for the server's root.
    pub(crate) fn name(&self) -> &str {
        name_of(&self.0)
    }

    /// The path of a child. The slash between the two may be missing or stand on either side; an empty child is the parent.
    pub(crate) fn join(&self, child: &str) -> ServerPath {
        let parent = self.0.strip_suffix('/').unwrap_or(&self.0);
        let child = child.strip_prefix('/').unwrap_or(child);
        let is_self = child.is_empty() && !parent.is_empty();
        ServerPath(if is_self { parent.to_owned() } else { [parent, "/", child].concat() })
    }

    /// The paths above, from the top, without the server's root and without the path itself: `/a` and `/a/b` for `/a/b/c`.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = ServerPath> {
        self.0.match_indices('/').skip(1).filter_map(|(end, _)| self.0.get(..end)).map(ServerPath::from_server)
    }
}

impl fmt::Display for ServerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The prefix of a caller's path at the server: the connect string's chroot, then the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// Chroot and namespace as one path, empty if there is neither.
    whole: String,
    /// How many bytes of `whole` are the chroot.
    chroot_length: usize,
}

impl Prefix {
    /// `chroot` is empty or a path, `namespace` is empty or a path without its leading slash.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] for a chroot, [`Error::InvalidArgument`] for a namespace that makes no valid path.
    pub(crate) fn new(chroot: &str, namespace: &str) -> Result<Prefix> {
        let chroot = if chroot == "/" { "" } else { chroot };
        if !chroot.is_empty() {
            validate_path(chroot)?;
        }
        if let Some(rule) = broken_rule(&format!("/{namespace}")) {
            let rule = format!("with '/' in front it is a path, and {rule}");
            return Err(Error::InvalidArgument { name: "namespace", value: namespace.to_owned(), rule });
        }
        let whole = if namespace.is_empty() { chroot.to_owned() } else { format!("{chroot}/{namespace}") };
        Ok(Prefix { whole, chroot_length: chroot.len() })
    }

    /// Empty, or a path.
    pub(crate) fn chroot(&self) -> &str {
        self.whole.get(..self.chroot_length).unwrap_or("")
    }

    /// Empty, or a path without its leading slash.
    pub(crate) fn namespace(&self) -> &str {
        self.whole.get(self.chroot_length + 1..).unwrap_or("")
    }

    /// A caller's path as the server knows it; `/` is the namespace's root.
    ///
    /// # Errors
    /// [`Error::InvalidPath`] if ZooKeeper would refuse the caller's path.
    pub(crate) fn to_server(&self, client_path: &str) -> Result<ServerPath> {
        validate_path(client_path)?;
        Ok(ServerPath(self.whole.clone()).join(client_path))
    }

    /// The caller's form of a path of the server. A path outside of the prefix is left as it is.
    pub(crate) fn to_client(&self, server_path: &str) -> String {
        without_prefix(server_path, &self.whole).to_owned()
    }

    /// Whether the path is the namespace's root or above it.
    pub(crate) fn is_within(&self, path: &ServerPath) -> bool {
        path.as_str().len() <= self.whole.len()
    }

    /// A path as an ACL provider sees it: with the namespace, without the chroot.
    pub(crate) fn acl_path(&self, path: &ServerPath) -> String {
        without_prefix(path.as_str(), self.chroot()).to_owned()
    }
}

/// Takes whole names off the front only: `/app` is no prefix of `/apple`.
fn without_prefix<'a>(path: &'a str, prefix: &str) -> &'a str {
    match path.strip_prefix(prefix) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn valid_paths_pass() {
        for path in [
            "/",
            "/a",
            "/a/b/c",
            "/.a",
            "/a.",
            "/..a",
            "/...",
            "/a b",
            "/\u{20}",
            "/~",
            "/\u{a0}",
            "/b\u{fc}cher",
            "/\u{4e2d}",
            "/\u{d7ff}",
            "/\u{f900}",
            "/\u{ffef}",
        ] {
            assert!(validate_path(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn invalid_paths_name_the_rule_they_break() {
        for (path, part_of_rule) in [
            ("", "not empty"),
            ("a", "starts with '/'"),
            ("a/b", "starts with '/'"),
            (" /a", "starts with '/'"),
            ("/a/", "end with '/'"),
            ("//", "end with '/'"),
            ("//a", "empty"),
            ("/a//b", "empty"),
            ("/.", "\".\""),
            ("/..", "\"..\""),
            ("/a/./b", "\".\""),
            ("/a/../b", "\"..\""),
            ("/a/..", "\"..\""),
            ("/a\0b", "at byte 2"),
            ("/\u{1}", "not allowed"),
            ("/\u{1f}", "not allowed"),
            ("/\n", "not allowed"),
            ("/\u{7f}", "not allowed"),
            ("/\u{9f}", "not allowed"),
            ("/\u{e000}", "not allowed"),
            ("/\u{f8ff}", "not allowed"),
            ("/\u{fff0}", "not allowed"),
            ("/\u{ffff}", "not allowed"),
            ("/\u{10000}", "not allowed"),
            ("/a/\u{1f512}", "at byte 3"),
        ] {
            match validate_path(path) {
                Err(Error::InvalidPath { path: named, rule }) => {
                    assert_eq!(named, path);
                    assert!(rule.contains(part_of_rule), "{path:?} breaks {rule:?}, not {part_of_rule:?}");
                }
                other => unreachable!("{path:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn join_puts_one_slash_between() {
        for (parent, child, joined) in [
            ("/", "a", "/a"),
            ("/a", "b", "/a/b"),
            ("/a", "/b", "/a/b"),
            ("/a/", "b", "/a/b"),
            ("/", "/a/b", "/a/b"),
            ("", "a", "/a"),
            ("/a", "", "/a"),
            ("/", "", "/"),
            ("/", "/", "/"),
        ] {
            assert_eq!(ServerPath::from_server(parent).join(child).as_str(), joined, "{parent:?} and {child:?}");
        }
    }

    #[test]
    fn a_path_comes_apart() {
        for (path, parent, name, above) in [
            ("/", None, "", vec![]),
            ("/a", Some("/"), "a", vec![]),
            ("/a/b", Some("/a"), "b", vec!["/a"]),
            ("/a/b/\u{fc}", Some("/a/b"), "\u{fc}", vec!["/a", "/a/b"]),
        ] {
            let server_path = ServerPath::from_server(path);
            assert_eq!(server_path.parent().map(ServerPath::into_string).as_deref(), parent, "{path}");
            assert_eq!(server_path.name(), name, "{path}");
            assert_eq!(server_path.ancestors().map(ServerPath::into_string).collect::<Vec<_>>(), above, "{path}");
        }
        assert_eq!(ServerPath::from_server("/").join("a").join("b").to_string(), "/a/b");
    }

    #[test]
    fn a_prefix_goes_on_and_comes_off() {
        for (chroot, namespace, client, server, acl) in [
            ("", "", "/", "/", "/"),
            ("", "", "/a", "/a", "/a"),
            ("/", "", "/a", "/a", "/a"),
            ("/app", "", "/", "/app", "/"),
            ("/app", "", "/a/b", "/app/a/b", "/a/b"),
            ("", "shop", "/", "/shop", "/shop"),
            ("", "shop", "/a", "/shop/a", "/shop/a"),
            ("/app", "shop", "/", "/app/shop", "/shop"),
            ("/app", "shop", "/a", "/app/shop/a", "/shop/a"),
            ("/x/y", "z/w", "/a", "/x/y/z/w/a", "/z/w/a"),
            ("/app", "app", "/app", "/app/app/app", "/app/app"),
        ] {
            let prefix = Prefix::new(chroot, namespace).unwrap();
            let at_server = prefix.to_server(client).unwrap();
            assert_eq!(at_server.as_str(), server, "{prefix:?}");
            assert_eq!(prefix.to_client(server), client, "{prefix:?}");
            assert_eq!(prefix.acl_path(&at_server), acl, "{prefix:?}");
            assert_eq!((prefix.chroot(), prefix.namespace()), (chroot.trim_end_matches('/'), namespace));
        }
    }

    #[test]
    fn foreign_paths_stay_as_they_are() {
        let prefix = Prefix::new("/app", "shop").unwrap();
        for foreign in ["/", "/app", "/app/shopping", "/app/shopping/a", "/apple/shop/a", "/shop/a"] {
            assert_eq!(prefix.to_client(foreign), foreign);
        }
        assert_eq!(prefix.acl_path(&ServerPath::from_server("/apple/a")), "/apple/a");
    }

    #[test]
    fn a_bad_part_of_the_prefix_is_named() {
        for chroot in ["app", "/app/", "//", "/../a"] {
            assert!(matches!(Prefix::new(chroot, ""), Err(Error::InvalidPath { path, .. }) if path == chroot));
        }
        for namespace in ["/shop", "shop/", "a//b", "..", "a\0", "/"] {
            let refused = Prefix::new("/app", namespace);
            assert!(
                matches!(&refused, Err(Error::InvalidArgument { name: "namespace", value, .. }) if value == namespace),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn an_invalid_path_is_refused_in_the_callers_words() {
        let refused = Prefix::new("/app", "shop").unwrap().to_server("a");
        assert!(matches!(refused, Err(Error::InvalidPath { path, .. }) if path == "a"));
    }

    fn names() -> impl Strategy<Value = String> {
        "[a-c]{1,2}(/[a-c]{1,2}){0,3}"
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = validate_path(&text);
            let _ = Prefix::new(&text, &text);
            let path = ServerPath::from_server(text.as_str());
            let _ = (path.parent(), path.name(), path.ancestors().count(), path.join(&text));
        }

        #[test]
        fn a_path_to_the_server_and_back_is_the_same(chroot in names(), namespace in names(), path in names()) {
            for (chroot, namespace) in [("", ""), (chroot.as_str(), ""), ("", namespace.as_str()), (&chroot, &namespace)] {
                let chroot = if chroot.is_empty() { String::new() } else { format!("/{chroot}") };
                let prefix = Prefix::new(&chroot, namespace).unwrap();
                let path = format!("/{path}");
                let server = prefix.to_server(&path).unwrap();
                prop_assert!(validate_path(server.as_str()).is_ok());
                prop_assert_eq!(prefix.to_client(server.as_str()), path.clone());
                prop_assert_eq!(ServerPath::from_server(chroot).join(&prefix.acl_path(&server)), server);
            }
        }

        #[test]
        fn parent_and_name_join_to_the_path(path in names()) {
            let path = ServerPath::from_server(format!("/{path}"));
            let parent = path.parent().unwrap();
            prop_assert_eq!(&parent.join(path.name()), &path);
            prop_assert_eq!(path.ancestors().last(), Some(parent).filter(|parent| parent.as_str() != "/"));
        }
    }
}
