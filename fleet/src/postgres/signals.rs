//! Wake-ups: a connection of its own that listens for new work and results.

use std::time::Duration;

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator as _;

use super::Postgres;
use super::connection::known;
use super::operations::CHANNEL;
use crate::store::Result;

/// A connection that waits for notifications. A notification is only a reason to look earlier, so a
/// lost one delays work until the next look.
pub struct Signals(Client);

impl Postgres {
    /// Starts to listen on a connection of its own.
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
    /// Waits for a notification. Returns false if none came in time.
    ///
    /// # Errors
    /// Returns a [`FleetError`](crate::FleetError) if the connection is lost.
    pub fn wait(&mut self, most: Duration) -> Result<bool> {
        let mut notifications = self.0.notifications();
        let found = notifications.timeout_iter(most).next().map_err(known)?.is_some();
        // Further ones that have arrived are the same reason.
        while notifications.iter().next().map_err(known)?.is_some() {}
        Ok(found)
    }
}
