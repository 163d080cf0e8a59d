//! Handshakes, and what a session is.

use super::Row;

pub(super) const ROWS: [Row; 33] = [
    ("a session", "a open timeout=5000"),
    ("a timeout that is too short", "a open timeout=1; b open timeout=0; c open timeout=-5"),
    ("a timeout that is too long", "a open timeout=2000000000"),
    ("an old client's handshake", "a open old; a create /x flags=1; a exists /x"),
    ("a resumed session", "a open; a create /x flags=1; a cut; b resume a; b ephemerals /; b exists /x"),
    ("a resumed session with another timeout", "a open timeout=5000; a cut; b resume a timeout=9000; b ping"),
    (
        "a resumed session goes on while the old connection stands",
        "a open; a create /x flags=1; b resume a; a await; b ephemerals /",
    ),
    ("a resumed session of an old client", "a open; a cut; b resume a old; b ping"),
    ("a wrong password", "a open; a create /x flags=1; a cut; b resume a badly; c open; c exists /x"),
    ("a wrong password ends the session's connection", "a open; b resume a badly; a await; c resume a; c ping"),
    ("a session that was closed", "a open; a create /x flags=1; a close; b resume a; c open; c exists /x"),
    (
        "closeSession deletes ephemerals before its reply",
        "a open; b open; a create /x flags=1; a create /y flags=1; a close; b exists /x; b exists /y",
    ),
    ("closeSession leaves the rest", "a open; b open; a create /x; a create /x/y flags=3; a close; b children2 /x"),
    (
        "closeSession takes one number",
        "a open; b open; a create /x flags=1; a create /y flags=1; a close; b create /z; b exists /z; b exists /",
    ),
    (
        "closeSession after a create under way",
        "a open; b open; a create /x flags=1 & create /y flags=1 & delete /x & close; b exists /x; b exists /y; b exists /",
    ),
    (
        "a session outlives its connection",
        "a open; b open; a create /x flags=1; a cut; b exists /x; c resume a; c delete /x",
    ),
    ("a client that has seen too much", "a open; a create /x; b open zxid=1000; c open; c ping"),
    ("a client that has seen just enough", "a open; a create /x; b open zxid=0; c open zxid=-1"),
    (
        "a resumed session that has seen too much",
        "a open; a create /x flags=1; a cut; b resume a zxid=1000; c resume a; c exists /x",
    ),
    ("identities are the connection's", "a open; a auth digest me:secret; a whoami; a cut; b resume a; b whoami"),
    ("a ping tells the last transaction", "a open; a ping; a create /x; a ping; b open; b ping"),
    ("a begun session is a transaction", "a open; a ping; b open; a ping; c open; a ping"),
    ("a resumed session is none", "a open; b open; a ping; b cut; c resume b; a ping"),
    ("pings may be pipelined", "a open; a ping & create /x & ping & exists /x & ping"),
    (
        "answers come in order",
        "a open; a create /x & set /x 1 & get /x & delete /x & get /x & sync /x & create /x & exists /x",
    ),
    ("any xid will do", "a open; a create /x xid=77; a exists /x xid=77; a exists /x xid=0; a exists /x xid=-1000"),
    ("an unknown operation", "a open; a raw 999; a await"),
    ("an operation of the servers' own", "a open; a raw -1; a await"),
    ("a body cut short", "a open; a raw 3 body=00; a raw 4; a raw 8 body=0000000a41; a ping"),
    ("a write cut short", "a open; a raw 1 body=0000; a raw 2; a raw 5 body=00000001; a create /x; a exists /x"),
    ("a frame without a header", "a open; a bytes 0000000400000001"),
    ("a frame beyond the limit", "a open; a bytes 00100000"),
    ("a negative length", "a open; a bytes ffffffff"),
];
