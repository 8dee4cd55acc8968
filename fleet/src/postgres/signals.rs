//! Listens for new work and results on a separate connection.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::Postgres;
use super::operations::CHANNEL;
use crate::store::{FleetError, Result};

/// A connection that waits for notifications. A notification only makes a host check for work
/// sooner, so a lost notification only delays work until the host's next check. Several pending
/// notifications cause only one check.
pub struct Signals {
    notified: Receiver<()>,
    runtime: Runtime,
    /// Dropping it ends the connection.
    _client: Client,
}

impl Postgres {
    /// Starts listening on a separate connection.
    ///
    /// # Errors
    /// Returns a [`FleetError`].
    pub fn listen(&self) -> Result<Signals> {
        let (notify, notified) = channel(1);
        let (runtime, client) = self.connect_to_listen(&format!("LISTEN {CHANNEL}"), notify)?;
        Ok(Signals { notified, runtime, _client: client })
    }
}

impl Signals {
    /// Waits for a notification for at most `most`. Returns false if none arrived.
    ///
    /// # Errors
    /// Returns a [`FleetError`] if the connection is lost.
    pub fn wait(&mut self, most: Duration) -> Result<bool> {
        let notified = self.notified.recv();
        match self.runtime.block_on(async { timeout(most, notified).await }) {
            Ok(Some(())) => Ok(true),
            Ok(None) => Err(FleetError::Unreachable("the connection ended".to_owned())),
            Err(_elapsed) => Ok(false),
        }
    }
}
