//! What the examples connect to.
#![allow(dead_code, reason = "each example uses a part of it")]

use std::{env, error::Error, time::Duration};

use curator_locks::{Builder, CuratorFramework, ExponentialBackoffRetry, testing::TestingServer};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The servers that `ZK_CONNECT` names, else one that is thrown away with this value.
pub(crate) struct Servers {
    connect_string: String,
    _own: Option<TestingServer>,
}

impl Servers {
    pub(crate) fn find() -> Result<Servers> {
        if let Some(connect_string) = env::var("ZK_CONNECT").ok().filter(|value| !value.is_empty()) {
            return Ok(Servers { connect_string, _own: None });
        }
        let own = TestingServer::start()?;
        Ok(Servers { connect_string: own.connect_string(), _own: Some(own) })
    }

    pub(crate) fn connect_string(&self) -> &str {
        &self.connect_string
    }

    /// A client, as each of your processes has one.
    pub(crate) fn client(&self) -> Result<CuratorFramework> {
        connect(&self.connect_string)
    }
}

pub(crate) fn connect(connect_string: &str) -> Result<CuratorFramework> {
    start(builder(connect_string))
}

/// To be configured further.
pub(crate) fn builder(connect_string: &str) -> Builder {
    CuratorFramework::builder()
        .connect_string(connect_string)
        // A lock outlives a holder that crashes by this long.
        .session_timeout(Duration::from_secs(10))
        .connection_timeout(Duration::from_secs(5))
        .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 5))
        .namespace("examples")
}

pub(crate) fn start(builder: Builder) -> Result<CuratorFramework> {
    let client = builder.build()?;
    client.start()?;
    if !client.block_until_connected(Some(Duration::from_secs(30)))? {
        let why = client.connection_error().map(|error| error.to_string()).unwrap_or_default();
        return Err(format!("no connection: {why}").into());
    }
    Ok(client)
}
