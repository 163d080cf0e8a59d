//! The mechanism GSSAPI (RFC 4752): a Kerberos context, and in it the agreement that SASL protects nothing further.

use libgssapi::{
    context::{ClientCtx, CtxFlags, SecurityContext},
    credential::{Cred, CredUsage},
    error::Error,
    name::Name,
    oid::{GSS_MECH_KRB5, GSS_NT_HOSTBASED_SERVICE, GSS_NT_KRB5_PRINCIPAL, OidSet},
};

use super::{advice, config::Kerberos};
use crate::session::sasl::mechanism::{Failure, Mechanism};

/// No protection of what follows: TLS may do that.
const NO_LAYER: u8 = 1;

/// The tickets of this principal, or the first that there are.
pub(super) fn credentials(principal: Option<&str>) -> Result<Cred, String> {
    let name = principal.map(own_name).transpose()?;
    let kerberos = OidSet::singleton(GSS_MECH_KRB5).map_err(said)?;
    Cred::acquire(name.as_ref(), None, CredUsage::Initiate, Some(&kerberos)).map_err(said)
}

/// A principal with its realm.
pub(super) fn full_name(principal: &str) -> Result<String, String> {
    own_name(principal)?.canonicalize(Some(GSS_MECH_KRB5)).map(|name| name.to_string()).map_err(said)
}

fn own_name(principal: &str) -> Result<Name, String> {
    Name::new(principal.as_bytes(), Some(GSS_NT_KRB5_PRINCIPAL)).map_err(said)
}

/// The library's message: behind one that says little stands in brackets what Kerberos has to say.
pub(super) fn said(error: Error) -> String {
    plain(&error.to_string())
}

fn plain(text: &str) -> String {
    match text.split_once(" (") {
        Some((outer, "Success)")) => outer.to_owned(),
        Some((_, inner)) => inner.strip_suffix(')').unwrap_or(inner).to_owned(),
        None => text.to_owned(),
    }
}

/// The server's principal, in words and for the library.
pub(super) fn server(config: &Kerberos, host: &str) -> (String, Result<Name, String>) {
    let service = &config.service;
    let (text, by_principal) = match &config.server_principal {
        Some(principal) => (principal.clone(), true),
        None => (format!("{service}/{host}"), !config.canonicalize_hostname),
    };
    let name = if by_principal {
        own_name(&text)
    } else {
        Name::new(format!("{service}@{host}").as_bytes(), Some(GSS_NT_HOSTBASED_SERVICE)).map_err(said)
    };
    (text, name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GssapiStage {
    /// The server still has to prove who it is.
    Context,
    /// The server says next what protection it offers.
    Offer,
    /// The server says next whether it lets the client in.
    Verdict,
}

/// The client's side.
pub(super) struct Gssapi {
    context: ClientCtx,
    stage: GssapiStage,
    client: String,
    server: String,
}

impl Gssapi {
    /// The first token comes with it: the ticket for the server, for which the library may ask the centre.
    pub(super) fn begin(cred: Cred, server: String, target: Name) -> Result<(Gssapi, Vec<u8>), String> {
        let client = cred.name().map_or_else(|_| "the client".to_owned(), |name| name.to_string());
        let flags = CtxFlags::GSS_C_MUTUAL_FLAG | CtxFlags::GSS_C_INTEG_FLAG | CtxFlags::GSS_C_SEQUENCE_FLAG;
        let mut context = ClientCtx::new(Some(cred), target, flags, Some(GSS_MECH_KRB5));
        let token = context.step(None, None).map_err(said)?.map(|token| token.to_vec()).unwrap_or_default();
        Ok((Gssapi { context, stage: GssapiStage::Context, client, server }, token))
    }

    /// The server's part of the context. Where nothing is left to say, an empty token asks for the offer.
    fn prove(&mut self, challenge: &[u8]) -> Result<Vec<u8>, Failure> {
        let answer = self.context.step(Some(challenge), None).map_err(|error| self.impostor(&said(error)))?;
        if self.context.is_complete() {
            self.stage = GssapiStage::Offer;
        }
        Ok(answer.map(|token| token.to_vec()).unwrap_or_default())
    }

    fn agree(&mut self, challenge: &[u8]) -> Result<Vec<u8>, Failure> {
        let offer = self.context.unwrap(challenge).map_err(|error| self.impostor(&said(error)))?;
        if offer.len() != 4 {
            return Err(Failure::Protocol(format!("GSSAPI: an offer of {} bytes instead of 4", offer.len())));
        }
        if offer.first().is_none_or(|layers| layers & NO_LAYER == 0) {
            let why = "the server demands that SASL protects the connection itself, which no ZooKeeper client does";
            return Err(Failure::Refused(why.to_owned()));
        }
        self.stage = GssapiStage::Verdict;
        let agreed = self.context.wrap(false, &[NO_LAYER, 0, 0, 0]).map_err(|error| self.impostor(&said(error)))?;
        Ok(agreed.to_vec())
    }

    fn impostor(&self, said: &str) -> Failure {
        Failure::Refused(format!("the server does not prove to be {}: {said}", self.server))
    }
}

impl Mechanism for Gssapi {
    fn step(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        match self.stage {
            GssapiStage::Context if challenge.is_empty() => Err(Failure::Refused(
                "the server knows no SASL: it has no JAAS section `Server` (java.security.auth.login.config)".to_owned(),
            )),
            GssapiStage::Context if challenge.windows(6).any(|part| part == b"nonce=") => Err(Failure::Refused(
                "the server takes no tickets but passwords: its JAAS section `Server` has a DigestLoginModule; see Sasl::digest()"
                    .to_owned(),
            )),
            GssapiStage::Context => self.prove(challenge).map(Some),
            GssapiStage::Offer => self.agree(challenge).map(Some),
            GssapiStage::Verdict => Ok(None),
        }
    }

    fn why_refused(&self) -> String {
        advice::refused(&self.client, &self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kerberos_says_is_taken_out_of_its_brackets() {
        let cases = [
            ("Unspecified GSS failure.  Minor code may provide more information (Ticket expired)", "Ticket expired"),
            (
                "No credentials were supplied (No tickets (default cache: FILE:/a))",
                "No tickets (default cache: FILE:/a)",
            ),
            ("Invalid token was supplied (Success)", "Invalid token was supplied"),
            ("nothing else", "nothing else"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected);
        }
    }
}
