//! Who may do what.

use super::Row;

pub(super) const ROWS: [Row; 42] = [
    ("the list of a znode", "a open; a create /x; a acl /x"),
    ("a list of one's own", "a open; a create /x acl=world:anyone:rc,ip:127.0.0.1:w; a acl /x"),
    ("duplicates go", "a open; a create /x acl=world:anyone:r,world:anyone:r,world:anyone:rwcda; a acl /x"),
    ("no list", "a open; a create /x acl=-; a exists /x"),
    (
        "unknown schemes",
        "a open; a create /x acl=sasl:me:r; a create /x acl=foo:bar:r; a create /x acl=world:somebody:r",
    ),
    ("auth without an identity", "a open; a create /x acl=auth::rwcda; a exists /x"),
    ("auth with an identity", "a open; a auth digest me:secret; a create /x acl=auth::rwcda; a acl /x"),
    (
        "auth with two identities",
        "a open; a auth digest me:secret; a auth digest me:secret; a create /x acl=auth:whatever:rw; a acl /x",
    ),
    (
        "a digest without a hash",
        "a open; a create /x acl=digest:me:r; a create /x acl=digest:me:a:b:r; a create /x acl=digest::r; a create /x acl=digest:me::r",
    ),
    (
        "addresses and networks",
        "a open; a create /a acl=ip:127.0.0.1:rwcda; a create /b acl=ip:127.0.0.0/8:rwcda; a create /c acl=ip:127.0.0.1/33:r; a create /d acl=ip:localhost:r; a create /e acl=ip:1.2.3:r; a create /f acl=ip:1.2.3.256:r",
    ),
    (
        "an address that fits",
        "a open; a create /a acl=ip:127.0.0.1:rwcda data=1; a get /a; a create /a/b; a delete /a/b",
    ),
    ("an address that does not", "a open; a create /a acl=ip:10.0.0.1:rwcda data=1; a get /a; a set /a 2; a exists /a"),
    (
        "networks that fit and do not",
        "a open; a create /a acl=ip:127.1.2.3/8:r; a get /a; a create /b acl=ip:127.0.0.2/31:r; a get /b; a create /c acl=ip:9.9.9.9/0:r; a get /c",
    ),
    (
        "data needs READ",
        "a open; a create /x acl=world:anyone:wcda; a get /x; a children /x; a children2 /x; a exists /x",
    ),
    (
        "a look at the list needs READ or ADMIN",
        "a open; a create /x acl=world:anyone:wcd; a acl /x; a create /y acl=world:anyone:a; a acl /y; a create /z acl=world:anyone:r; a acl /z",
    ),
    (
        "hashes are for those with ADMIN",
        "a open; a auth digest me:secret; a create /x acl=auth::a,world:anyone:r; a acl /x; b open; b acl /x",
    ),
    (
        "a digest by its hash",
        "a open; a create /x acl=digest:user:tl+z3z0vO6PfPfEENfLF96E6pM0=:rwcda; a acl /x; a auth digest user:password; a get /x",
    ),
    ("setData needs WRITE", "a open; a create /x acl=world:anyone:rcda; a set /x 1; a set /x 1 5"),
    (
        "a child needs CREATE",
        "a open; a create /x acl=world:anyone:rwda; a create /x/y; a create /x/z flags=2; a create /x/y/z",
    ),
    (
        "a delete needs DELETE on the parent",
        "a open; a create /x acl=world:anyone:rwca; a create /x/y; a delete /x/y; a delete /x/none; a delete /x",
    ),
    ("a znode's own list does not protect it", "a open; a create /x acl=ip:10.0.0.1:r; a delete /x"),
    ("setACL needs ADMIN", "a open; a create /x acl=world:anyone:rwcd; a setacl /x world:anyone:r; a acl /x"),
    ("setACL", "a open; a create /x; a setacl /x world:anyone:ra; a acl /x; a set /x 1; a exists /x"),
    (
        "setACL of the right version",
        "a open; a create /x; a setacl /x world:anyone:ra 0; a setacl /x world:anyone:rwa 0; a setacl /x world:anyone:rwa 1; a acl /x",
    ),
    (
        "setACL of nothing, with nothing, badly",
        "a open; a setacl /x world:anyone:r; a create /x; a setacl /x -; a setacl /x foo:bar:r; a setacl /x/ world:anyone:r; a setacl !x world:anyone:r",
    ),
    (
        "setACL by auth",
        "a open; a create /x; a setacl /x auth::rwcda; a auth digest me:secret; a setacl /x auth::rwcda; a acl /x; b open; b get /x",
    ),
    (
        "setACL leaves data and children's numbers",
        "a open; a create /x data=1; a create /x/y; a setacl /x world:anyone:r; a exists /x",
    ),
    (
        "a permit taken away and given back",
        "a open; a create /x; a create /x/y; b open; a setacl /x world:anyone:a; b create /x/z; b children /x; b delete /x/y; a setacl /x world:anyone:rwcda; b create /x/z; b children /x",
    ),
    (
        "identities count from the packet on",
        "a open; b open; b auth digest me:secret; b create /x acl=auth::rwcda data=1; a get /x; a auth digest me:wrong; a get /x; a auth digest me:secret; a get /x",
    ),
    ("whoAmI", "a open; a whoami; a auth digest me:secret; a whoami; a auth digest you:secret; a whoami"),
    ("whoAmI without a password", "a open; a auth digest me; a whoami; a auth digest me:a:b; a whoami"),
    ("credentials of an unknown scheme end the connection", "a open; a auth kerberos me:secret; a await"),
    ("auth by address changes nothing", "a open; a auth ip 10.0.0.1; a whoami"),
    (
        "a check in a multi needs READ",
        "a open; a create /x acl=world:anyone:wcda; a multi check /x 0; a multi check /x -1",
    ),
    (
        "a multi with refused rights",
        "a open; a create /x acl=world:anyone:r; a multi create /y + create /x/z; a exists /y; a multi set /x 1; a multi delete /x",
    ),
    (
        "who may not read is not told of data",
        "a open; b open; a create /x; b get /x w; b exists /x w; a setacl /x ip:10.0.0.1:r,ip:127.0.0.1:w; a set /x 1; b events",
    ),
    (
        "who may not read is not told of a delete",
        "a open; b open; a create /x; b get /x w; b children /x w; a setacl /x ip:10.0.0.1:r; a delete /x; b events; a create /x; b events",
    ),
    (
        "who may not read is not told of a create",
        "a open; b open; b exists /x w; a create /x acl=ip:10.0.0.1:r; b events; a delete /x; b events",
    ),
    (
        "who may not read is not told of children",
        "a open; b open; a create /x; b children /x w; a setacl /x ip:10.0.0.1:r,ip:127.0.0.1:cd; a create /x/y; b events; a delete /x/y; b events",
    ),
    (
        "an event that was kept back is over",
        "a open; b open; a create /x; b get /x w; a setacl /x ip:127.0.0.1:wa; a set /x 1; a setacl /x world:anyone:rwcda; a set /x 2; b events",
    ),
    (
        "who authenticates later is told",
        "a open; b open; a create /x; b get /x w; a auth digest me:secret; a setacl /x auth::rwcda; b auth digest me:secret; a set /x 1; b events",
    ),
    (
        "setWatches asks for no rights",
        "a open; b open; a create /x acl=ip:10.0.0.1:r; b setwatches data=/x; b setwatches exist=/x; b setwatches child=/x",
    ),
];
