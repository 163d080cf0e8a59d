//! Advice on a bad ticket, keytab, principal, clock or realm, in words for a person.

use std::env;

use super::config::Kerberos;
use crate::session::sasl::mechanism::Failure;

/// The cause of a failure, as far as the library's message tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blame {
    /// There is no ticket.
    NoTicket,
    Expired,
    /// The cache holds tickets of others.
    OtherPrincipal,
    Keytab,
    /// The key of the keytab is not the one that the centre knows.
    OldKey,
    /// The centre does not know the client, or has locked it.
    Client,
    /// The centre does not know the server.
    Server,
    Clock,
    Realm,
    /// The centre does not answer.
    Away,
    /// The message says all.
    Said,
    Unknown,
}

/// Words of MIT's library, each with its cause. The first that fits counts.
const WORDS: [(&str, Blame); 35] = [
    ("a cache of its own", Blame::Said),
    ("cannot run kinit", Blame::Said),
    ("Clock skew too great", Blame::Clock),
    ("Cannot contact any KDC", Blame::Away),
    ("Cannot resolve servers for KDC", Blame::Away),
    ("Cannot resolve network address for KDC", Blame::Away),
    ("A service is not available", Blame::Away),
    ("Cannot find KDC for realm", Blame::Realm),
    ("default realm", Blame::Realm),
    ("Cannot determine realm", Blame::Realm),
    ("Realm not local to KDC", Blame::Realm),
    ("KDC reply did not match expectations", Blame::Realm),
    ("KDC policy rejects", Blame::Client),
    ("Improper format of Kerberos configuration file", Blame::Realm),
    ("Can't open/find Kerberos configuration file", Blame::Realm),
    ("Included profile", Blame::Realm),
    ("Server not found in Kerberos database", Blame::Server),
    ("Server has invalid", Blame::Server),
    ("Client not found in Kerberos database", Blame::Client),
    ("entry in database has expired", Blame::Client),
    ("credentials have been revoked", Blame::Client),
    ("Password has expired", Blame::Client),
    ("Key table file", Blame::Keytab),
    ("Keytab contains no suitable keys", Blame::Keytab),
    ("keytab", Blame::Keytab),
    ("key table", Blame::Keytab),
    ("Preauthentication failed", Blame::OldKey),
    ("Password incorrect", Blame::OldKey),
    ("Decrypt integrity check failed", Blame::OldKey),
    ("Can't find client principal", Blame::OtherPrincipal),
    ("does not match desired name", Blame::OtherPrincipal),
    ("expired", Blame::Expired),
    ("No Kerberos credentials available", Blame::NoTicket),
    ("redentials cache", Blame::NoTicket),
    ("No credentials", Blame::NoTicket),
];

fn blame(said: &str) -> Blame {
    // The names of a client and of a server stand in the middle: "Server zookeeper/zk1@R not found in Kerberos database".
    if said.contains("not found in Kerberos database") {
        return if said.contains("Server") { Blame::Server } else { Blame::Client };
    }
    WORDS.iter().find(|(words, _)| said.contains(words)).map_or(Blame::Unknown, |(_, blame)| *blame)
}

/// The failure that follows from what the library said, while a ticket for this server was wanted.
pub(super) fn failure(config: &Kerberos, server: &str, said: &str) -> Failure {
    let blame = blame(said);
    let advice = advice(config, server, blame);
    let text = if advice.is_empty() { format!("Kerberos: {said}") } else { format!("Kerberos: {said}; {advice}") };
    // An unknown cause may pass, and a held lock should outlive that. A keytab gets another ticket.
    let may_pass = match blame {
        Blame::Away | Blame::Unknown => true,
        Blame::Expired => config.keytab.is_some(),
        _ => false,
    };
    if may_pass { Failure::NotNow(text) } else { Failure::Refused(text) }
}

fn advice(config: &Kerberos, server: &str, blame: Blame) -> String {
    let client = config.principal.as_deref().unwrap_or("the client");
    let keytab = config.keytab.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    match blame {
        Blame::NoTicket => format!("there is no ticket in {}: run kinit, or give a keytab()", cache()),
        Blame::Expired => {
            format!("the ticket in {} has expired: run kinit again, keep it fresh with k5start, or give a keytab()", cache())
        }
        Blame::OtherPrincipal => format!("{} holds no ticket of {client}: see principal() and `klist -A`", cache()),
        Blame::Keytab => format!(
            "the keytab {keytab} has to be a file that this user may read, with a key of {client}: see `klist -k {keytab}`"
        ),
        Blame::OldKey => format!(
            "the key of {client} in the keytab {keytab} is not the one of the key distribution centre: it was changed since, so \
             write the keytab anew"
        ),
        Blame::Client => format!("the principal {client} has to be known to the key distribution centre, and not be locked"),
        Blame::Server => format!(
            "the server was taken for the principal {server}: see server_principal(), service() and canonicalize_hostname()"
        ),
        Blame::Clock => {
            "the clock of this machine and that of the key distribution centre are more than 5 minutes apart: see NTP".to_owned()
        }
        Blame::Realm => {
            "the realm has to be in krb5.conf (KRB5_CONFIG names another file), in capitals, with its key distribution centre"
                .to_owned()
        }
        Blame::Away => "the key distribution centre does not answer; trying again".to_owned(),
        Blame::Said | Blame::Unknown => String::new(),
    }
}

/// The servers say of a refusal nothing but that.
pub(super) fn refused(client: &str, server: &str) -> String {
    format!(
        "the server refuses the ticket of {client} for {server}: its keytab lacks the current key of that principal, its clock is more \
         than 5 minutes off, or its JAAS section `Server` has no Krb5LoginModule; its log says which"
    )
}

/// The credential cache, as a person would name it.
pub(super) fn cache() -> String {
    match env::var("KRB5CCNAME") {
        Ok(name) if !name.is_empty() => format!("the credential cache {name}"),
        _ => "the default credential cache (KRB5CCNAME names another)".to_owned(),
    }
}

/// Whether the cache keeps the tickets of several principals apart.
pub(super) fn is_collection() -> bool {
    let name = env::var("KRB5CCNAME").unwrap_or_default();
    ["DIR:", "KEYRING:", "KCM:", "API:"].iter().any(|kind| name.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_has_its_cause() {
        let cases = [
            ("Server zookeeper/zk1@R not found in Kerberos database", Blame::Server),
            ("Client 'shop@R' not found in Kerberos database while getting initial credentials", Blame::Client),
            ("Ticket expired", Blame::Expired),
            ("The referenced credential has expired", Blame::Expired),
            ("No Kerberos credentials available (default cache: FILE:/tmp/krb5cc_0)", Blame::NoTicket),
            ("Key table file '/etc/shop.keytab' not found while getting initial credentials", Blame::Keytab),
            ("Preauthentication failed while getting initial credentials", Blame::OldKey),
            ("Clock skew too great while getting initial credentials", Blame::Clock),
            ("Cannot find KDC for realm \"ELSEWHERE\" while getting initial credentials", Blame::Realm),
            ("Configuration file does not specify default realm", Blame::Realm),
            ("Cannot contact any KDC for realm 'EXAMPLE.COM'", Blame::Away),
            ("Client's entry in database has expired", Blame::Client),
            ("something new", Blame::Unknown),
        ];
        for (said, expected) in cases {
            assert_eq!(blame(said), expected, "{said}");
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let config = Kerberos::default();
        assert!(matches!(failure(&config, "zookeeper/zk1", "Cannot contact any KDC"), Failure::NotNow(_)));
        assert!(matches!(failure(&config, "zookeeper/zk1", "something new"), Failure::NotNow(_)));
        assert!(matches!(failure(&config, "zookeeper/zk1", "Ticket expired"), Failure::Refused(_)));
    }
}
