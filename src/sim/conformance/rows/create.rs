//! Znodes made: kinds, names, what is refused.

use super::Row;

pub(super) const ROWS: [Row; 40] = [
    ("a create answers with the path", "a open; a create /x"),
    ("data is kept", "a open; a create /x data=hello; a get /x"),
    ("create2 answers with the stat", "a open; a create2 /x data=hello"),
    ("a znode that exists is not made again", "a open; a create /x; a create /x"),
    ("create2 of a znode that exists", "a open; a create /x; a create2 /x"),
    ("a missing parent", "a open; a create /x/y"),
    ("a refused create takes a transaction number", "a open; a create /x/y; a create /z; a exists /z"),
    (
        "the parent counts its children",
        "a open; a create /x; a create /x/a; a create /x/b; a exists /x; a children2 /x",
    ),
    (
        "a delete counts as well",
        "a open; a create /x; a create /x/a; a delete /x/a; a exists /x; a create /x/b; a exists /x",
    ),
    ("ephemerals have an owner", "a open; a create2 /x flags=1; a exists /x"),
    ("ephemerals have no children", "a open; a create /x flags=1; a create /x/y; a create /x/y flags=2"),
    ("a znode that exists below an ephemeral cannot be", "a open; a create /x flags=1; a create /x/"),
    ("sequential names count from zero", "a open; a create /x- flags=2; a create /x- flags=3; a create /y flags=2"),
    (
        "sequential names go by the parent's creates",
        "a open; a create /d; a create /d/a; a create /d/b; a delete /d/a; a create /d/x flags=2; a create /d/y flags=3",
    ),
    (
        "deletes do not lower the next number",
        "a open; a create /d; a create /d/x flags=2; a delete /d/x0000000000; a create /d/x flags=2",
    ),
    (
        "a directory made anew counts anew",
        "a open; a create /d; a create /d/x flags=2; a delete /d/x0000000000; a delete /d; a create /d; a create /d/x flags=2",
    ),
    ("a sequential znode may have only a number", "a open; a create /d; a create /d/ flags=2; a create /d/ flags=3"),
    ("refused creates do not count", "a open; a create /d; a create /d/x; a create /d/x; a create /d/y flags=2"),
    ("sequential with create2", "a open; a create2 /x flags=3 data=abc"),
    ("a container has its own owner", "a open; a container /c; a exists /c"),
    ("a container may have children", "a open; a container /c; a create /c/x; a container /c/d; a children2 /c"),
    ("create with the flag of a container is plain", "a open; a create /c flags=4; a exists /c"),
    ("createContainer without the flag is a container", "a open; a container /c flags=0; a exists /c"),
    ("createContainer with the flag of an ephemeral", "a open; a container /c flags=1; a exists /c; a ephemerals /"),
    ("createContainer that is sequential", "a open; a container /c flags=2"),
    ("unknown flags", "a open; a create /c flags=7; a create /c flags=-1; a create /c flags=100"),
    ("TTL znodes are off by default", "a open; a ttl /t; a ttl /t flags=6; a create /t flags=5"),
    ("createTTL without the flag", "a open; a ttl /t flags=0 ttl=5; a ttl /t flags=1 ttl=0"),
    ("an empty path", "a open; a create !"),
    ("no slash", "a open; a create !x; a create !x flags=2"),
    ("a slash at the end", "a open; a create /x; a create /x/; a create /y/"),
    ("two slashes", "a open; a create /x; a create /x//y; a create //x"),
    (
        "dots",
        "a open; a create /.; a create /..; a create /x; a create /x/.; a create /x/..; a create /...; a create /.a",
    ),
    ("a NUL", "a open; a create /x\\0y; a exists /x\\0y; a delete /x\\0y; a get /x\\0y"),
    ("control characters", "a open; a create /x\u{1}; a create /x\u{7f}; a create /x\u{9f}; a create /x\u{a1}"),
    (
        "surrogates and specials",
        "a open; a create /x\u{e000}; a create /x\u{f900}; a create /x\u{fff1}; a create /x\u{1f600}",
    ),
    ("the root exists", "a open; a create ~/"),
    ("a name with blanks is data of its own", "a open; a create /x data=a=b; a get /x"),
    ("large data", "a open; a create /x data=size:500000; a exists /x"),
    (
        "pipelined creates",
        "a open; a create /d; a create /d/x flags=2 & create /d/x flags=2 & create /d/x flags=3 & children2 /d",
    ),
];
