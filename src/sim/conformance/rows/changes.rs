//! Znodes changed and deleted, and read back.

use super::Row;

pub(super) const ROWS: [Row; 30] = [
    ("a delete", "a open; a create /x; a delete /x; a exists /x"),
    ("a delete of the right version", "a open; a create /x; a set /x 1; a delete /x 1"),
    ("a delete of another version", "a open; a create /x; a delete /x 1; a delete /x 0"),
    ("a delete of nothing", "a open; a delete /x; a delete /x 3"),
    ("a delete below nothing", "a open; a delete /x/y"),
    ("a znode with children stays", "a open; a create /x; a create /x/y; a delete /x; a delete /x 7"),
    ("a deleted child changes the parent", "a open; a create /x; a create /x/y; a delete /x/y; a exists /x"),
    ("bad paths of a delete", "a open; a delete !; a delete !x; a delete /x/; a delete ~/"),
    (
        "znodes that nobody may delete",
        "a open; a delete ~/zookeeper; a delete ~/zookeeper/quota; a delete ~/zookeeper/config",
    ),
    ("data is set", "a open; a create /x; a set /x one; a get /x; a set /x two; a get /x"),
    ("data of the right version is set", "a open; a create /x; a set /x one 0; a set /x two 1; a get /x"),
    ("data of another version stays", "a open; a create /x data=old; a set /x one 1; a get /x; a set /x two -2"),
    ("data of nothing", "a open; a set /x one; a set /x/y one 4"),
    ("bad paths of a set", "a open; a set ! one; a set !x one; a set /x/ one; a set ~// one; a set /./x one"),
    ("setData leaves the children alone", "a open; a create /x; a create /x/y; a set /x one; a exists /x"),
    (
        "a znode made anew begins with version 0",
        "a open; a create /x; a set /x one; a delete /x; a create /x; a exists /x",
    ),
    ("reads of nothing", "a open; a get /x; a exists /x; a children /x; a children2 /x; a acl /x"),
    ("reads with bad paths", "a open; a get !; a get !x; a exists !; a exists /x/; a children /x//y"),
    ("the root under its two names", "a open; a exists ~/; a exists /"),
    ("children of a leaf", "a open; a create /x; a children /x; a children2 /x"),
    ("children of a directory", "a open; a create /b; a create /a; a create /c; a children /; a children2 /"),
    ("sync answers with its path", "a open; a sync /x; a sync !; a sync !x; a create /x; a sync /x"),
    ("sync needs no znode and takes no number", "a open; a sync /x; a sync /y; a create /z; a exists /z"),
    (
        "ephemerals of a session",
        "a open; a create /x flags=1; a create /y; a create /y/z flags=3; a ephemerals /; a ephemerals /y; a ephemerals !",
    ),
    (
        "ephemerals by a prefix that is no whole name",
        "a open; a create /abc flags=1; a create /abd flags=1; a ephemerals /ab; a ephemerals /abc; a ephemerals /b",
    ),
    ("ephemerals of another session", "a open; b open; a create /x flags=1; b ephemerals /"),
    (
        "a deleted ephemeral is none",
        "a open; a create /x flags=1; a delete /x; a ephemerals /; a create /x; a exists /x",
    ),
    ("others may delete an ephemeral", "a open; b open; a create /x flags=1; b delete /x; a ephemerals /"),
    ("others may set an ephemeral's data", "a open; b open; a create /x flags=1; b set /x 5; a get /x"),
    (
        "refusals take numbers, one by one",
        "a open; a delete /x; a set /x 1; a create /x/y; a setacl /x world:anyone:r; a create /z; a exists /z",
    ),
];
