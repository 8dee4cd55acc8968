//! A fleet's database in PostgreSQL.
//!
//! The connection must be direct: prepared statements and LISTEN do not work behind a pooler that
//! may use a different connection for each transaction. Every operation is one transaction at the
//! isolation level `READ COMMITTED`. Rows are locked in the order given in `schema.sql`.

pub(crate) mod blobs;
mod claim;
mod connection;
pub(crate) mod init;
mod maintenance;
mod operations;
mod signals;

use runner_engine::outcome::Outcome;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement, Transaction};

pub use connection::Postgres;
pub use maintenance::Pruned;
pub use signals::Signals;

use crate::rows::{HostState, Snapshot};
use crate::store::{FleetError, FleetStore, Result};
use crate::types::{
    Claim, ClaimRequest, Declined, Deliverable, Delivery, HostInfo, Lease, Offer, Release, Verdict,
};

/// The parameters of a statement.
type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// An error from a statement inside a transaction.
#[derive(Debug)]
enum Fault {
    Known(FleetError),
    Sql(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<FleetError> for Fault {
    fn from(error: FleetError) -> Self {
        Self::Known(error)
    }
}

/// A transaction whose statements are prepared once per connection.
struct Step<'a> {
    tx: Transaction<'a>,
    wait: connection::Wait<'a>,
    statements: &'a mut connection::Statements,
}

impl Step<'_> {
    fn prepare(&mut self, sql: &'static str) -> Result<Statement, Fault> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.wait.on(self.tx.prepare(sql))?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    fn query(&mut self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.prepare(sql)?;
        self.wait.on(self.tx.query(&statement, params))
    }

    fn one(&mut self, sql: &'static str, params: Params<'_>) -> Result<Row, Fault> {
        let statement = self.prepare(sql)?;
        self.wait.on(self.tx.query_one(&statement, params))
    }

    fn first(&mut self, sql: &'static str, params: Params<'_>) -> Result<Option<Row>, Fault> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    fn change(&mut self, sql: &'static str, params: Params<'_>) -> Result<u64, Fault> {
        let statement = self.prepare(sql)?;
        self.wait.on(self.tx.execute(&statement, params))
    }

    /// Runs several statements.
    fn batch(&mut self, sql: &str) -> Result<(), Fault> {
        self.wait.on(self.tx.batch_execute(sql))
    }
}

/// Parses a JSON value from a row.
fn json<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    let parsed = serde_json::from_value(value);
    parsed.map_err(|error| {
        Fault::Known(FleetError::Database(format!("a row cannot be read: {error}")))
    })
}

impl FleetStore for Postgres {
    fn join(&mut self, host: &HostInfo) -> Result<()> {
        self.write(|step| operations::join(step, host))
    }

    fn set_host_state(&mut self, host: &str, state: HostState) -> Result<()> {
        self.write(|step| operations::set_host_state(step, host, state))
    }

    fn offer(&mut self, offer: &Offer) -> Result<String> {
        self.write(|step| operations::offer(step, offer))
    }

    fn claim(&mut self, request: &ClaimRequest) -> Result<(Vec<Claim>, Vec<Declined>)> {
        self.write(|step| claim::claim(step, request))
    }

    fn renew(&mut self, occurrence: &str, fence: i64, worker: &str) -> Result<Lease> {
        self.write(|step| operations::renew(step, occurrence, fence, worker))
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Verdict> {
        self.write(|step| operations::deliver(step, delivery))
    }

    fn release(&mut self, release: &Release) -> Result<()> {
        self.write(|step| operations::release(step, release))
    }

    fn deliveries(&mut self, home: &str) -> Result<Vec<Deliverable>> {
        self.write(|step| operations::deliveries(step, home))
    }

    fn begin_publish(&mut self, occurrence: &str, fence: i64, home: &str) -> Result<()> {
        self.write(|step| operations::begin_publish(step, (occurrence, fence, home)))
    }

    fn settle(
        &mut self,
        occurrence: &str,
        fence: i64,
        home: &str,
        outcome: &Outcome,
    ) -> Result<()> {
        self.write(|step| operations::settle(step, (occurrence, fence, home), outcome))
    }

    fn reopen(&mut self, occurrence: &str, fence: i64, home: &str, why: &str) -> Result<()> {
        self.write(|step| operations::reopen(step, (occurrence, fence, home), why))
    }

    fn cancel(&mut self, occurrence: &str, home: &str, why: &str) -> Result<()> {
        self.write(|step| operations::cancel(step, occurrence, home, why))
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        self.write(|step| {
            let row = step.first(include_str!("snapshot.sql"), &[])?;
            let row = row.ok_or(FleetError::NoFleet)?;
            json(row.try_get(0)?)
        })
    }
}
