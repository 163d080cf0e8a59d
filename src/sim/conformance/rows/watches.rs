//! Who is told of what, and when.

use super::Row;

pub(super) const ROWS: [Row; 46] = [
    ("a data watch is told of a change", "a open; b open; a create /x; b get /x w; a set /x 1; b events"),
    ("a data watch is told of a delete", "a open; b open; a create /x; b get /x w; a delete /x; b events"),
    (
        "a data watch is not told of children",
        "a open; b open; a create /x; b get /x w; a create /x/y; b events; a set /x 1; b events",
    ),
    ("a watch is told once", "a open; b open; a create /x; b get /x w; a set /x 1; a set /x 2; a delete /x; b events"),
    ("a watch on nothing is told of a create", "a open; b open; b exists /x w; a create /x; b events"),
    (
        "a watch of getData on nothing is none",
        "a open; b open; b get /x w; b children /x w; a create /x; a create /x/y; b events",
    ),
    (
        "a watch of exists on a znode",
        "a open; b open; a create /x; b exists /x w; a set /x 1; b events; b exists /x w; a delete /x; b events",
    ),
    (
        "a child watch is told of a create",
        "a open; b open; a create /x; b children /x w; a create /x/y; a create /x/z; b events",
    ),
    (
        "a child watch is told of a delete",
        "a open; b open; a create /x; a create /x/y; b children2 /x w; a delete /x/y; b events",
    ),
    (
        "a child watch is not told of data",
        "a open; b open; a create /x; a create /x/y; b children /x w; a set /x 1; a set /x/y 1; b events; a create /x/z; b events",
    ),
    (
        "a child watch is told of the end of its znode",
        "a open; b open; a create /x; b children /x w; a delete /x; b events",
    ),
    (
        "both watches are told once of the end",
        "a open; b open; a create /x; b children /x w; b get /x w; a delete /x; b events",
    ),
    (
        "a child watch is not told of grandchildren",
        "a open; b open; a create /x; a create /x/y; b children /x w; a create /x/y/z; b events",
    ),
    (
        "two reads leave one watch",
        "a open; b open; a create /x; b get /x w; b exists /x w; b get /x w; a set /x 1; a set /x 2; b events",
    ),
    (
        "a read without a watch does not take one away",
        "a open; b open; a create /x; b get /x w; b get /x; a set /x 1; b events",
    ),
    (
        "each connection has watches of its own",
        "a open; b open; c open; a create /x; b get /x w; c get /x w; a set /x 1; b events; c events",
    ),
    (
        "one's own change is told before its reply",
        "a open; a create /x; a get /x w; a set /x 1; a children / w; a create /y; a exists /z w; a create /z",
    ),
    (
        "one's own delete is told before its reply",
        "a open; a create /x; a get /x w; a children /x w; a children / w; a delete /x",
    ),
    (
        "a read behind a write tells first",
        "a open; a create /x; a get /x w & set /x 1 & get /x w & set /x 2 & exists /x",
    ),
    (
        "a watch left again is told again",
        "a open; b open; a create /x; b get /x w; a set /x 1; b get /x w; a set /x 2; b events",
    ),
    (
        "the end of a session is told",
        "a open; b open; a create /x flags=1; b exists /x w; b children / w; a close; b events",
    ),
    ("an ephemeral that its owner deletes", "a open; b open; a create /x flags=1; b get /x w; a delete /x; b events"),
    (
        "watches end with their connection",
        "a open; b open; a create /x; b get /x w; b cut; a set /x 1; c resume b; c events",
    ),
    (
        "setWatches leaves watches on what is unchanged",
        "a open; b open; a create /x; a create /d; b mark; b cut; c resume b; c exists /x; c setwatches zxid=100 data=/x exist=/none child=/d; a set /x 1; a create /none; a create /d/y; c events",
    ),
    (
        "setWatches tells of a change",
        "a open; b open; a create /x; b exists /x; b mark; a set /x 1; b setwatches zxid=mark data=/x; a set /x 2; b events",
    ),
    (
        "setWatches tells of nothing before its zxid",
        "a open; b open; a create /x; a set /x 1; b exists /x; b mark; b setwatches zxid=mark data=/x; b events; a set /x 2; b events",
    ),
    (
        "setWatches tells of a delete",
        "a open; b open; a create /x; b exists /x; b mark; a delete /x; b setwatches zxid=mark data=/x; b setwatches zxid=mark child=/x; b events",
    ),
    (
        "setWatches tells of a delete and a create as of a change",
        "a open; b open; a create /x; b exists /x; b mark; a delete /x; a create /x; b setwatches zxid=mark data=/x child=/x; b events",
    ),
    (
        "setWatches tells of a create",
        "a open; b open; b exists /x; b mark; a create /x; b setwatches zxid=mark exist=/x; b events",
    ),
    (
        "setWatches on what did not come",
        "a open; b open; b mark; b setwatches zxid=mark exist=/x; a create /x; b events",
    ),
    (
        "setWatches on what exists tells, however old",
        "a open; b open; a create /x; b exists /x; b mark; b setwatches zxid=mark exist=/x; b events; a set /x 1; b events",
    ),
    (
        "setWatches tells of children",
        "a open; b open; a create /d; b exists /d; b mark; a create /d/y; b setwatches zxid=mark child=/d; b events",
    ),
    (
        "setWatches tells of children that went",
        "a open; b open; a create /d; a create /d/y; b exists /d; b mark; a delete /d/y; b setwatches zxid=mark child=/d; b events",
    ),
    (
        "setWatches does not take data for children",
        "a open; b open; a create /d; b exists /d; b mark; a set /d 1; b setwatches zxid=mark child=/d; b events; a create /d/x; b events",
    ),
    (
        "setWatches tells in its order",
        "a open; b open; a create /x; a create /d; b exists /d; b mark; a set /x 1; a create /d/y; a create /new; b setwatches zxid=mark data=/x,/gone exist=/new child=/d,/gone; b events",
    ),
    (
        "setWatches2",
        "a open; b open; a create /x; a create /d; b exists /d; b mark; a set /x 1; b setwatches2 zxid=mark data=/x exist=/n child=/d; a create /d/y; a create /n; b events",
    ),
    ("setWatches of nothing", "a open; a setwatches; a setwatches2"),
    ("removeWatches", "a open; b open; a create /x; b get /x w; b removewatches /x 2; a set /x 1; b events"),
    (
        "removeWatches of the other table",
        "a open; b open; a create /x; b get /x w; b removewatches /x 1; a set /x 1; b events",
    ),
    (
        "removeWatches of children",
        "a open; b open; a create /x; b children /x w; b removewatches /x 2; b removewatches /x 1; a create /x/y; b events",
    ),
    (
        "removeWatches of both",
        "a open; b open; a create /x; b children /x w; b get /x w; b removewatches /x 3; a create /x/y; a delete /x/y; a delete /x; b events; b removewatches /x 3",
    ),
    (
        "removeWatches of a watch on nothing",
        "a open; b open; b exists /x w; b removewatches /x 2; a create /x; b events",
    ),
    (
        "removeWatches of another's watch",
        "a open; b open; a create /x; b get /x w; a removewatches /x 2; a set /x 1; b events",
    ),
    ("removeWatches after the event", "a open; b open; a create /x; b get /x w; a set /x 1; b removewatches /x 2"),
    (
        "removeWatches of an unknown table",
        "a open; a create /x; a get /x w; a removewatches /x 0; a removewatches /x 9; a set /x 1",
    ),
    (
        "a lock's waiter leaves a watch and takes it away",
        "a open; b open; a create /l; a create /l/x- flags=3; b create /l/x- flags=3 & children /l; b get /l/x-0000000000 w & get /l/x-0000000001; b removewatches /l/x-0000000000 2 & delete /l/x-0000000001; a delete /l/x-0000000000; b events",
    ),
];
