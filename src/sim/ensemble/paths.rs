//! Which paths the servers accept.

/// Everything up to the last slash: of `/a` the empty path, which is the root's other name. `None`: no slash, or a NUL.
pub(super) fn parent(path: &str) -> Option<&str> {
    if path.contains('\0') {
        return None;
    }
    path.rfind('/').map(|slash| &path[..slash])
}

pub(super) fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

/// Znodes that nobody may delete.
pub(super) fn is_special(path: &str) -> bool {
    matches!(path, "/" | "/zookeeper" | "/zookeeper/quota" | "/zookeeper/config")
}

pub(super) fn is_valid(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.is_empty() || rest.split('/').all(|part| !matches!(part, "" | "." | "..") && part.chars().all(is_allowed))
}

/// Java looks at UTF-16: whatever takes two units is in the range of surrogates.
fn is_allowed(character: char) -> bool {
    !matches!(u32::from(character), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}
