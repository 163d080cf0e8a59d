//! Three servers: what goes through followers, and sessions that move.

use super::Row;

pub(super) const ROWS: [Row; 36] = [
    ("a write through a follower", "a open at=follower; a create /x data=1; a get /x; a set /x 2; a delete /x 1"),
    (
        "refusals through a follower",
        "a open at=follower; a create /x; a create /x; a delete /y; a set /x 1 5; a create /x/y/z; a setacl /x -; a create !",
    ),
    ("a refusal through a follower takes a number", "a open at=follower; a create /x/y; a create /z; a exists /z"),
    (
        "one's own write is read",
        "a open at=follower; a create /x & set /x 1 & get /x & set /x 2 & get /x & delete /x & exists /x",
    ),
    (
        "answers of a follower come in order",
        "a open at=follower; a create /x & ping & sync / & exists /x & create /y & whoami & children /",
    ),
    (
        "sequential names over all servers",
        "a open at=leader; b open at=follower; c open at=other; a create /d; b create /d/x flags=3; c create /d/x flags=3; a create /d/x flags=3; b sync /; b children2 /d",
    ),
    (
        "a sync brings a follower up to date",
        "a open at=leader; b open at=follower; a create /x data=1; b sync /x; b get /x; a set /x 2; b sync /x; b get /x",
    ),
    (
        "a write through the leader comes after one through a follower",
        "a open at=leader; b open at=follower; b create /x; a create /y; a exists /x",
    ),
    (
        "a watch at a follower",
        "a open at=leader; b open at=follower; a create /x; b sync /; b get /x w; a set /x 1; b sync /",
    ),
    (
        "watches at all servers",
        "a open at=leader; b open at=follower; c open at=other; b sync /; c sync /; b exists /x w; c exists /x w; a exists /x w; b create /x; a await; b sync /; c sync /",
    ),
    (
        "one's own change through a follower is told before its reply",
        "a open at=follower; a exists /x w; a create /x; a get /x w & set /x 1 & exists /x",
    ),
    (
        "a multi through a follower",
        "a open at=follower; a multi create /x + create /x/y flags=2 + check /x 0; a multi create /z + delete /none; a exists /z",
    ),
    (
        "identities go with the request",
        "a open at=follower; a auth digest me:secret; a create /x acl=auth::rwcda; a acl /x; b open at=other; b sync /; b get /x; b set /x 1",
    ),
    ("a container through a follower", "a open at=follower; a container /c; a create /c/x; a exists /c"),
    (
        "closeSession through a follower",
        "a open at=follower; b open at=other; a create /x flags=1; a create /y flags=3; a close; b sync /; b exists /x; b exists /",
    ),
    (
        "a session is resumed at another server",
        "a open at=follower; a create /x flags=1; a cut; b resume a at=other; b sync /; b ephemerals /; b create /y flags=1",
    ),
    (
        "a session is resumed at the leader",
        "a open at=follower; a create /x flags=1; a cut; c open at=leader; b resume a at=leader; b ephemerals /; b delete /x",
    ),
    (
        "a session of the leader is resumed at a follower",
        "a open at=leader; a create /x flags=1; a cut; b resume a at=follower; b sync /; b ephemerals /; b set /x 1",
    ),
    (
        "a resumed session with another timeout, at another server",
        "a open at=follower timeout=9000; a cut; b resume a at=other timeout=5000; b sync /",
    ),
    (
        "a wrong password at a follower",
        "a open at=follower; a cut; b resume a at=other badly; c resume a at=other; c sync /",
    ),
    ("a closed session at a follower", "a open at=follower; a close; c open at=other; c sync /; b resume a at=other"),
    ("a closed session at the leader", "a open at=follower; a close; c open at=leader; b resume a at=leader"),
    (
        "a session that moved ends the connection that writes",
        // ZooKeeper takes the refusal for the commit of b's request if that waits at its server by then. So it does below.
        "a open at=follower; d open at=other; b resume a at=other; a exists /; a create /x; d sync /; b exists /x; b create /x",
    ),
    (
        "a session that moved may still read at a follower",
        "a open at=follower; a create /x; b resume a at=other; a exists /x; a ping; a sync /; a get /x",
    ),
    ("a session that moved may not read at the leader", "a open at=leader; b resume a at=follower; a exists /"),
    ("a session that moved may not ping at the leader", "a open at=leader; b resume a at=follower; a ping"),
    ("a session that moved may not sync at the leader", "a open at=leader; b resume a at=follower; a sync /"),
    (
        "a session that moved to the leader",
        "a open at=follower; b resume a at=leader; a exists /; a sync /; a set / 1; b set / 2",
    ),
    (
        "a multi of a session that moved",
        "a open at=follower; d open at=other; b resume a at=other; a multi create /x + create /y; d sync /; b exists /x",
    ),
    (
        "a refused write of a session that moved takes a number",
        "a open at=follower; d open at=other; b resume a at=other; a delete /none; d sync /; b create /y; b exists /y",
    ),
    (
        "a session that moved there and back",
        // ZooKeeper takes the commit of /x for the one of b's request if that waits at its server by then.
        "a open at=follower; d open at=other; b resume a at=other; c resume a at=follower; c create /x; d sync /; b create /y; c sync /; c exists /y",
    ),
    (
        "closeSession of a session that moved closes it",
        "a open at=follower; a create /x flags=1; b resume a at=other; a close; b await; c open; c sync /; c exists /x",
    ),
    (
        "a session closed from outside ends its connection",
        "a open at=follower; a create /x flags=1; b resume a at=other; b close; a await; c open; c sync /; c exists /x",
    ),
    (
        "a client that has seen too much for a follower",
        "a open at=follower; a create /x; b open at=other zxid=100000; c open at=other; c ping",
    ),
    (
        "watches go to another server",
        "a open at=leader; b open at=follower; a create /x; a create /d; b sync /; b mark; b cut; a set /x 1; a create /d/y; c resume b at=other; c sync /; c setwatches zxid=mark data=/x exist=/n child=/d; a create /n; c sync /",
    ),
    ("an unknown operation at a follower", "a open at=follower; a raw 999; a await"),
];
