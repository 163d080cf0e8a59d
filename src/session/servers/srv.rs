//! SRV records: a name that stands for servers and their ports.

use std::io;

#[cfg(feature = "dns-srv")]
use hickory_resolver::{Resolver, TokioResolver, net::runtime::TokioRuntimeProvider, proto::rr::RData};

/// The prefix of such a name in a connect string.
pub(crate) const PREFIX: &str = "dnssrv:";

/// Hosts and ports of a service such as `_zk._tcp.example`, in no order: all servers of an ensemble are alike. Asks the name servers
/// of the system each time. May block for long.
#[cfg(feature = "dns-srv")]
pub(crate) fn look_up(service: &str) -> io::Result<Vec<(String, u16)>> {
    ask(service, || Resolver::builder(TokioRuntimeProvider::default())?.build())
}

/// Nobody comes here: without the feature such a connect string is refused.
#[cfg(not(feature = "dns-srv"))]
pub(crate) fn look_up(_service: &str) -> io::Result<Vec<(String, u16)>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The resolver's tasks run on this thread, and end with the look-up.
#[cfg(feature = "dns-srv")]
fn ask(
    service: &str,
    resolver: impl FnOnce() -> Result<TokioResolver, hickory_resolver::net::NetError>,
) -> io::Result<Vec<(String, u16)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // From its root on: a search list would lead elsewhere.
    let name = format!("{}.", service.trim_end_matches('.'));
    let found = runtime.block_on(async { resolver()?.srv_lookup(name).await }).map_err(io::Error::other)?;
    let server = |data: &RData| match data {
        // A port that is 0, or the root for a target: the service is not there (RFC 2782).
        RData::SRV(srv) if srv.port != 0 && !srv.target.is_root() => {
            Some((srv.target.to_ascii().trim_end_matches('.').to_owned(), srv.port))
        }
        _ => None,
    };
    Ok(found.answers().iter().filter_map(|record| server(&record.data)).collect())
}

/// A name server on loopback, and how the library asks it.
#[cfg(all(test, feature = "dns-srv"))]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types, reason = "a test's own server")]
pub(crate) mod tests {
    use std::{
        net::{SocketAddr, UdpSocket},
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
        time::Duration,
    };

    use hickory_resolver::{
        config::{ConnectionConfig, NameServerConfig, ResolverConfig},
        proto::{
            op::{Message, ResponseCode},
            rr::{Name, Record, rdata::SRV},
            serialize::binary::{BinDecodable, BinEncodable},
        },
    };

    use super::*;
    use crate::base::sync::Mutex;

    type Servers = Arc<Mutex<Vec<(String, u16)>>>;

    /// Answers every question for `_zk._tcp.example` with the servers that it has been told.
    pub(crate) struct NameServer {
        address: SocketAddr,
        servers: Servers,
        ends: Arc<AtomicBool>,
    }

    impl NameServer {
        pub(crate) fn start() -> NameServer {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let (address, servers, ends) = (socket.local_addr().unwrap(), Servers::default(), Arc::default());
            let name_server = NameServer { address, servers: servers.clone(), ends };
            let ends = name_server.ends.clone();
            thread::spawn(move || {
                let mut question = [0; 512];
                while !ends.load(Ordering::SeqCst) {
                    let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                    let asked = Message::from_bytes(question.get(..length).unwrap_or_default()).unwrap();
                    socket.send_to(&answer(&asked, &servers.lock()).to_bytes().unwrap(), from).unwrap();
                }
            });
            name_server
        }

        pub(crate) fn set(&self, servers: &[(&str, u16)]) {
            *self.servers.lock() = servers.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect();
        }

        pub(crate) fn look_up(&self, service: &str) -> io::Result<Vec<(String, u16)>> {
            let mut connection = ConnectionConfig::udp();
            connection.port = self.address.port();
            let server = NameServerConfig::new(self.address.ip(), true, vec![connection]);
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            ask(service, || Resolver::builder_with_config(config, TokioRuntimeProvider::default()).build())
        }
    }

    impl Drop for NameServer {
        fn drop(&mut self) {
            self.ends.store(true, Ordering::SeqCst);
        }
    }

    fn answer(asked: &Message, servers: &[(String, u16)]) -> Message {
        let query = asked.queries.first().unwrap().clone();
        let mut answer = Message::response(asked.metadata.id, asked.metadata.op_code);
        if query.name() == &Name::from_ascii("_zk._tcp.example.").unwrap() {
            let record = |(name, port): &(String, u16)| {
                let target = Name::from_ascii(format!("{name}.")).unwrap();
                Record::from_rdata(query.name().clone(), 60, RData::SRV(SRV::new(1, 1, *port, target)))
            };
            answer.answers.extend(servers.iter().map(record));
        } else {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        answer.queries.push(query);
        answer
    }

    #[test]
    fn a_service_stands_for_its_servers_and_is_asked_for_anew_each_time() {
        let name_server = NameServer::start();
        name_server.set(&[("zk1.example", 2181), ("zk2.example", 2182), ("", 2183), ("zk3.example", 0)]);
        let mut found = name_server.look_up("_zk._tcp.example").unwrap();
        found.sort();
        assert_eq!(found, [("zk1.example".to_owned(), 2181), ("zk2.example".to_owned(), 2182)]);
        name_server.set(&[("zk4.example", 2181)]);
        assert_eq!(name_server.look_up("_zk._tcp.example").unwrap(), [("zk4.example".to_owned(), 2181)]);
        assert!(name_server.look_up("_other._tcp.example").is_err());
    }
}
