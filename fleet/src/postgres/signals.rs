//! Listens for new work and results on a separate connection.

use std::time::Duration;

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator as _;

use super::Postgres;
use super::connection::known;
use super::operations::CHANNEL;
use crate::store::Result;

/// A connection waiting for notifications. A notification merely makes a host look for work sooner,
/// so a lost notification only delays work until the host next looks.
pub struct Signals(Client);

impl Postgres {
    /// Starts listening on a separate connection.
    ///
    /// # Errors
    /// Returns a [`FleetError`](crate::FleetError).
    pub fn listen(&self) -> Result<Signals> {
        let mut client = self.connect()?;
        client.batch_execute(&format!("LISTEN {CHANNEL}")).map_err(known)?;
        Ok(Signals(client))
    }
}

impl Signals {
    /// Waits for a notification for at most `most`. Returns false if none arrived.
    ///
    /// # Errors
    /// Returns a [`FleetError`](crate::FleetError) if the connection is lost.
    pub fn wait(&mut self, most: Duration) -> Result<bool> {
        let mut notifications = self.0.notifications();
        let found = notifications.timeout_iter(most).next().map_err(known)?.is_some();
        // The host looks only once, regardless of how many notifications have arrived.
        while notifications.iter().next().map_err(known)?.is_some() {}
        Ok(found)
    }
}
