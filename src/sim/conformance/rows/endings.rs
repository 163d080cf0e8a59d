//! What ends by itself: sessions, containers, TTL znodes. On one server with short intervals.

use super::Row;

pub(super) const ROWS: [Row; 20] = [
    (
        "a session that nobody keeps expires",
        "a open timeout=400; a create /x flags=1; b open; b exists /x w; a cut; b await; b exists /x; c resume a",
    ),
    (
        "a session that expires ends its connection",
        "a open timeout=400; a create /x flags=1; a await; b resume a; c open; c exists /x",
    ),
    (
        "an expired session takes one number",
        "a open timeout=400; a create /x flags=1; a create /y flags=1; b open; b exists /x w; a cut; b await; b create /z; b exists /z; b exists /",
    ),
    ("a session without znodes expires, too", "a open timeout=400; a await; b open; b ping"),
    (
        "an expired session's znodes are told to the parent's watch",
        "a open timeout=400; a create /x flags=1; b open; b children / w; b await",
    ),
    (
        "a resumed session does not expire",
        "a open timeout=600; a create /x flags=1; a cut; b resume a timeout=30000; c open timeout=800; c await; b exists /x",
    ),
    (
        "pings keep a session",
        "a open timeout=600; a create /x flags=1; b open timeout=400; a ping; b await; a ping; a exists /x",
    ),
    (
        "a resumed session expires by the new timeout",
        "a open timeout=30000; a create /x flags=1; b resume a timeout=400; a await; b await; c open; c exists /x",
    ),
    (
        "closing does not wait for the timeout",
        "a open timeout=30000; a create /x flags=1; b open; b exists /x w; a close; b await",
    ),
    (
        "a container goes once it was used and is empty",
        "a open; a container /c; a create /c/x; a exists /c w; a delete /c/x; a await; a exists /c",
    ),
    (
        "a container that was never used stays",
        "a open; a container /c; b open timeout=800; b await; a exists /c; a create /c/x",
    ),
    (
        "a container that is not empty stays",
        "a open; a container /c; a create /c/x; b open timeout=800; b await; a exists /c",
    ),
    (
        "a container goes by the end of a session",
        "a open timeout=400; b open; b container /c; a create /c/x flags=3; b exists /c w; a cut; b await; b exists /c",
    ),
    (
        "containers go from below",
        "a open; a container /c; a container /c/d; a create /c/d/x; a exists /c w; a delete /c/d/x; a await; a exists /c; a exists /c/d",
    ),
    (
        "a container's end is told to the parent's watch",
        "a open; a container /c; a create /c/x; a delete /c/x; a children / w; a await; a children /",
    ),
    (
        "a container whose end its reader may not see",
        "a open; a container /c; a create /c/x; b open; b exists /c w; a setacl /c ip:10.0.0.1:r,ip:127.0.0.1:cd; a exists /c w; a delete /c/x; c open timeout=800; c await; a exists /c; b events; a exists /c",
    ),
    ("a TTL znode goes", "a open; a ttl /t ttl=300; a exists /t w; a await; a exists /t"),
    (
        "a TTL znode with children stays",
        "a open; a ttl /t ttl=100; a create /t/x; b open timeout=800; b await; a exists /t",
    ),
    (
        "TTL znodes: kinds and refusals",
        "a open; a ttl /t ttl=100000; a ttl /s flags=6 ttl=100000; a ttl /t ttl=0; a ttl /t ttl=-1; a ttl /t ttl=1099511627776; a ttl /u ttl=1099511627775; a exists /t; a multi ttl /v ttl=100000 + create /v/x; a exists /v; a ttl /w flags=1 ttl=5; a create /y flags=5",
    ),
    (
        "an ephemeral beside extended kinds",
        "a open; a create2 /x flags=1; a create /x/y; a container /c; a create /c/x; a children /c",
    ),
];
