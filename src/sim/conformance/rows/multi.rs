//! Transactions of several operations.

use super::Row;

pub(super) const ROWS: [Row; 36] = [
    ("a multi of one create", "a open; a multi create /x data=1; a get /x"),
    (
        "a multi of each kind",
        "a open; a create /x; a multi create /y + set /x 1 + check /x 1 + delete /x 1; a exists /x; a exists /y",
    ),
    ("an empty multi", "a open; a multi; a create /x; a exists /x"),
    ("all of a multi has one number", "a open; a multi create /x + create /y; a exists /x; a exists /y"),
    ("a failed check", "a open; a create /x; a multi check /x 3 + create /y; a exists /y"),
    ("a failure in the middle", "a open; a multi create /x + delete /z + create /y; a exists /x; a exists /y"),
    ("a failure at the end", "a open; a multi create /x + create /y + create /y; a exists /x"),
    ("a failed multi takes a number", "a open; a multi delete /z; a create /x; a exists /x"),
    ("a check of nothing", "a open; a multi check /x 0; a multi check /x -1"),
    (
        "a check of any version",
        "a open; a create /x; a set /x 1; a multi check /x -1; a multi check /x 1; a multi check /x 0",
    ),
    ("a set of another version", "a open; a create /x data=old; a multi set /x new 4; a get /x"),
    (
        "what a multi makes it may use",
        "a open; a multi create /x + create /x/y + set /x/y 1 + delete /x/y + create /x/z; a children2 /x",
    ),
    (
        "what a multi deletes it may make anew",
        "a open; a create /x data=1; a multi delete /x + create /x data=2; a get /x",
    ),
    ("a multi deletes from below", "a open; a create /x; a create /x/y; a multi delete /x/y + delete /x; a exists /x"),
    (
        "a multi that deletes from above",
        "a open; a create /x; a create /x/y; a multi delete /x + delete /x/y; a exists /x/y",
    ),
    (
        "sequential names in a multi",
        "a open; a create /d; a multi create /d/x flags=2 + create /d/x flags=3 + create /d/y flags=2; a children2 /d",
    ),
    (
        "a failed multi gives its sequence numbers back",
        "a open; a create /d; a multi create /d/x flags=2 + create /d/x flags=2 + delete /none; a create /d/x flags=2; a exists /d",
    ),
    (
        "a failed multi behind writes under way",
        "a open; a create /d; a create /d/x flags=2 & multi create /d/x flags=2 + delete /none & create /d/x flags=2 & create /d/x flags=2; a exists /d",
    ),
    ("create2 in a multi answers as create does", "a open; a multi create2 /x data=1; a get /x"),
    ("a container in a multi", "a open; a multi container /c + create /c/x; a exists /c"),
    ("a container in a multi by its flag", "a open; a multi create /c flags=4; a exists /c"),
    ("a TTL znode in a multi", "a open; a multi ttl /t; a exists /t"),
    ("unknown flags in a multi", "a open; a multi create /c flags=9; a exists /c"),
    (
        "an ephemeral in a multi",
        "a open; a multi create /x flags=1 + create /x/y; a multi create /x flags=1; a ephemerals /",
    ),
    (
        "bad paths in a multi",
        "a open; a multi create !; a multi delete !x; a multi check ! 0; a multi set /x/ 1; a multi check !x -1",
    ),
    ("znodes that nobody may delete, in a multi", "a open; a multi create /x + delete ~/; a exists /x"),
    (
        "operations that a multi does not take",
        "a open; a multi exists /x; a multi sync /x; a multi create /x + setacl /x world:anyone:r; a exists /x",
    ),
    (
        "a multi is told of once for each znode",
        "a open; b open; b exists /x w; b exists /y w; b children / w; a multi create /x + create /y; b events",
    ),
    (
        "a set and a delete in one multi",
        "a open; b open; a create /x; b get /x w; a multi set /x 1 + delete /x; b events",
    ),
    (
        "a failed multi is not told of",
        "a open; b open; b exists /x w; a multi create /x + delete /none; b events; a create /x; b events",
    ),
    (
        "the unfair lock's transaction",
        "a open; a create /d; a multi delete /d + create /d + create /d/u flags=1; a multi delete /d + create /d + create /d/u flags=1; a children /d",
    ),
    ("a multi cut short", "a open; a raw 14 body=0000000100; a create /x; a exists /x"),
    (
        "several reads in one request",
        "a open; a create /x data=1; a create /x/y; a reads children /x + get /x + get /x/y + children /x/y; a reads get /x; a reads",
    ),
    (
        "of several reads each has its own result",
        "a open; a create /x data=1 acl=world:anyone:cda; a create /y data=2; a reads get /none + children /x + get /y + children /none; a reads get /x",
    ),
    ("several reads behind a write", "a open; a create /x; a create /x/y flags=3; a reads children /x + get /x"),
    ("no write stands between reads", "a open; a create /x; a reads get /x + delete /x; a exists /x"),
];
