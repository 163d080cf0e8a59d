//! DIGEST-MD5 (RFC 2831), as far as ZooKeeper speaks it: authentication alone, `md5-sess`, no other identity than the user's.

use super::mechanism::{Failure, Mechanism};
use crate::base::random;
use md5::{Digest as _, Md5};

/// The name of the service and of the host that every ZooKeeper server gives itself.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";

/// No challenge may be longer (RFC 2831, 2.1.1).
const LONGEST_CHALLENGE: usize = 2048;

/// The client's side.
pub(super) struct DigestMd5 {
    user: String,
    password: String,
    cnonce: String,
    digest_uri: &'static str,
    /// The proof that the server has to give, once the client has given its own.
    expected: Option<String>,
}

impl DigestMd5 {
    pub(super) fn new(user: String, password: String) -> DigestMd5 {
        let cnonce = random::uuid().simple().to_string();
        DigestMd5 { user, password, cnonce, digest_uri: DIGEST_URI, expected: None }
    }

    fn answer(&mut self, challenge: &[u8]) -> Result<Vec<u8>, Failure> {
        let challenge = Challenge::parse(challenge)?;
        let realm = challenge.realm.as_deref().unwrap_or_default();
        let [user, realm_bytes, password] = [&self.user, realm, &self.password].map(|text| challenge.bytes(text));
        let secret = Md5::digest([user?, realm_bytes?, password?].join(&b':'));
        let session = [&secret[..], b":", challenge.nonce.as_bytes(), b":", self.cnonce.as_bytes()].concat();
        let session = hex(&Md5::digest(session));
        let proof = |method: &str| {
            let uri = hex(&Md5::digest(format!("{method}:{}", self.digest_uri)));
            hex(&Md5::digest(format!("{session}:{}:00000001:{}:auth:{uri}", challenge.nonce, self.cnonce)))
        };
        let charset = if challenge.is_utf8 { "charset=utf-8," } else { "" };
        let realm = challenge.realm.as_deref().map(|realm| format!("realm={},", quoted(realm))).unwrap_or_default();
        let head = format!("{charset}username={},{realm}nonce={},", quoted(&self.user), quoted(&challenge.nonce));
        let (cnonce, uri, response) = (quoted(&self.cnonce), quoted(self.digest_uri), proof("AUTHENTICATE"));
        self.expected = Some(proof(""));
        let text = format!("{head}nc=00000001,cnonce={cnonce},digest-uri={uri},response={response},qop=auth");
        if challenge.is_utf8 { Ok(text.into_bytes()) } else { latin1(&text).ok_or_else(not_in_latin1) }
    }
}

impl Mechanism for DigestMd5 {
    fn step(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self.expected.take() {
            None if challenge.is_empty() => Err(Failure::Refused(
                "the server knows no SASL: it has no JAAS section `Server` (java.security.auth.login.config)"
                    .to_owned(),
            )),
            None => self.answer(challenge).map(Some),
            Some(expected) => {
                let given = directives(challenge)?.into_iter().find(|(name, _)| name == "rspauth");
                if given.is_some_and(|(_, proof)| proof == expected) {
                    return Ok(None);
                }
                Err(Failure::Refused(format!(
                    "the server does not prove that it knows the password of {:?}: it may be somebody else's",
                    self.user
                )))
            }
        }
    }

    fn why_refused(&self) -> String {
        format!(
            "the server does not accept the user {:?} with this password: its JAAS section `Server` needs a \
             DigestLoginModule with a line user_{}=\"...\"; its log says more",
            self.user, self.user
        )
    }
}

/// The server's first token.
struct Challenge {
    realm: Option<String>,
    nonce: String,
    is_utf8: bool,
}

impl Challenge {
    fn parse(challenge: &[u8]) -> Result<Challenge, Failure> {
        let directives = directives(challenge)?;
        let all =
            |wanted: &'static str| directives.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| value);
        let once = |wanted: &'static str| {
            if all(wanted).count() > 1 {
                Err(malformed("a directive stands there twice"))
            } else {
                Ok(all(wanted).next())
            }
        };
        let nonce = once("nonce")?.ok_or_else(|| malformed("there is no nonce"))?.clone();
        if once("algorithm")?.is_none_or(|algorithm| algorithm != "md5-sess") {
            return Err(malformed("the algorithm is not md5-sess"));
        }
        if once("qop")?.is_some_and(|qop| !qop.split(',').any(|each| each.trim() == "auth")) {
            let why = "the server demands that SASL protects the connection itself, which no ZooKeeper client does";
            return Err(Failure::Refused(why.to_owned()));
        }
        let is_utf8 = once("charset")?.is_some_and(|charset| charset.eq_ignore_ascii_case("utf-8"));
        Ok(Challenge { realm: all("realm").next().cloned(), nonce, is_utf8 })
    }

    /// The text as it is hashed: in ISO 8859-1 where it can be, else in UTF-8 where both sides know that.
    fn bytes(&self, text: &str) -> Result<Vec<u8>, Failure> {
        match latin1(text) {
            Some(bytes) => Ok(bytes),
            None if self.is_utf8 => Ok(text.as_bytes().to_vec()),
            None => Err(not_in_latin1()),
        }
    }
}

/// The pairs of name and value, of which a list consists, the names in lower case.
fn directives(bytes: &[u8]) -> Result<Vec<(String, String)>, Failure> {
    if bytes.len() > LONGEST_CHALLENGE {
        return Err(malformed("it is longer than 2048 bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("it is not text"))?;
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches([',', ' ', '\t', '\r', '\n']);
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or_else(|| malformed("a directive has no value"))?;
        let (value, after) = value(after.trim_start())?;
        found.push((name.trim().to_ascii_lowercase(), value));
        let after = after.trim_start();
        if !after.is_empty() && !after.starts_with(',') {
            return Err(malformed("there is no comma between directives"));
        }
        rest = after.trim_start_matches([',', ' ', '\t', '\r', '\n']);
    }
    Ok(found)
}

/// A value, quoted or not, and what follows it.
fn value(text: &str) -> Result<(String, &str), Failure> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        return Ok((value.trim_end().to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next() {
            Some('"') => return Ok((value, chars.as_str())),
            Some('\\') => value.extend(chars.next()),
            Some(other) => value.push(other),
            None => return Err(malformed("a quote is not closed")),
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn latin1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn malformed(why: &str) -> Failure {
    Failure::Protocol(format!("the server's DIGEST-MD5 challenge cannot be read: {why}"))
}

fn not_in_latin1() -> Failure {
    Failure::Refused(
        "the server knows no UTF-8, and the user or the password has characters beyond ISO 8859-1".to_owned(),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The two examples of RFC 2831, section 4.
    const EXAMPLES: [(&str, &str, &str, &str, &str); 2] = [
        (
            "imap/elwood.innosoft.com",
            "OA6MG9tEQGm2hh",
            "OA6MHXh6VqTrRk",
            "d388dad90d4bbd760a152321f2143af7",
            "ea40f60335c427b5527b84dbabcdfffd",
        ),
        (
            "acap/elwood.innosoft.com",
            "OA9BSXrbuRhWay",
            "OA9BSuZWMSpW8m",
            "6084c6db3fede7352c551284490fd0fc",
            "2f0b3d7c3c2e486600ef710726aa2eae",
        ),
    ];

    fn client(user: &str, password: &str) -> DigestMd5 {
        DigestMd5::new(user.to_owned(), password.to_owned())
    }

    fn text(answer: Option<Vec<u8>>) -> String {
        String::from_utf8(answer.unwrap()).unwrap()
    }

    #[test]
    fn the_examples_of_the_standard_come_out() {
        for (uri, nonce, cnonce, response, rspauth) in EXAMPLES {
            let mut client = DigestMd5 { digest_uri: uri, cnonce: cnonce.into(), ..client("chris", "secret") };
            let challenge = format!(
                "realm=\"elwood.innosoft.com\",nonce=\"{nonce}\",qop=\"auth\",algorithm=md5-sess,charset=utf-8"
            );
            let answer = text(client.step(challenge.as_bytes()).unwrap());
            assert_eq!(
                answer,
                format!(
                    "charset=utf-8,username=\"chris\",realm=\"elwood.innosoft.com\",nonce=\"{nonce}\",nc=00000001,\
                     cnonce=\"{cnonce}\",digest-uri=\"{uri}\",response={response},qop=auth"
                )
            );
            assert!(client.step(format!("rspauth={rspauth}").as_bytes()).unwrap().is_none());
        }
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_not_believed() {
        let mut client = client("chris", "secret");
        client.step(b"nonce=\"n\",algorithm=md5-sess").unwrap();
        let refused = client.step(b"rspauth=ea40f60335c427b5527b84dbabcdfffd").unwrap_err();
        assert!(matches!(&refused, Failure::Refused(why) if why.contains("chris") && !why.contains("secret")));
    }

    #[test]
    fn a_server_without_sasl_answers_with_nothing() {
        let refused = client("chris", "secret").step(b"").unwrap_err();
        assert!(matches!(&refused, Failure::Refused(why) if why.contains("JAAS")), "{refused:?}");
    }

    #[test]
    fn names_with_quotes_and_backslashes_are_escaped_and_read_again() {
        let mut client = client(r#"a"b\c"#, "p");
        let answer = client.step(br#"realm="r\"s", nonce="n\\m" , algorithm=md5-sess"#).unwrap().unwrap();
        let read = directives(&answer).unwrap();
        let value = |wanted: &str| read.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        assert_eq!(
            (value("username"), value("realm"), value("nonce")),
            (Some(r#"a"b\c"#), Some(r#"r"s"#), Some(r"n\m"))
        );
    }

    #[test]
    fn letters_of_latin1_are_hashed_as_such_and_others_as_utf8_if_the_server_knows_it() {
        let challenge = |is_utf8| Challenge { realm: None, nonce: "n".into(), is_utf8 };
        assert_eq!(challenge(true).bytes("\u{e9}").unwrap(), b"\xe9");
        assert_eq!(challenge(true).bytes("\u{20ac}").unwrap(), "\u{20ac}".as_bytes());
        assert!(matches!(challenge(false).bytes("\u{20ac}"), Err(Failure::Refused(_))));
        assert_eq!(
            client("\u{e9}", "p").step(b"nonce=\"n\",algorithm=md5-sess").unwrap().unwrap().get(9..11),
            Some(&b"\"\xe9"[..])
        );
    }

    #[test]
    fn a_challenge_that_is_none_is_told_apart_from_a_refusal() {
        let long = vec![b'a'; LONGEST_CHALLENGE + 1];
        let wrong: [&[u8]; 8] = [
            b"nonce",
            b"nonce=\"n",
            b"nonce=\"n\"",
            b"nonce=\"n\" algorithm=md5-sess",
            b"nonce=\"n\",nonce=\"m\",algorithm=md5-sess",
            b"nonce=\"n\",algorithm=md5",
            b"\xff=\"n\"",
            &long,
        ];
        for challenge in wrong {
            let failure = client("chris", "secret").step(challenge).unwrap_err();
            assert!(matches!(failure, Failure::Protocol(_)), "{failure:?}");
        }
        let layered = client("chris", "secret").step(b"nonce=\"n\",algorithm=md5-sess,qop=\"auth-int,auth-conf\"");
        assert!(matches!(layered, Err(Failure::Refused(_))));
        assert!(client("chris", "secret").step(b"nonce=\"n\",algorithm=md5-sess,qop=\"auth-int, auth\"").is_ok());
    }

    #[test]
    fn no_two_authentications_have_the_same_nonce_of_the_client() {
        assert_ne!(client("a", "b").cnonce, client("a", "b").cnonce);
    }
}
