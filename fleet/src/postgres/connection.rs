//! The connection to the database: address, TLS, timeouts, and the translation of errors.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::error::SqlState;
use postgres::{Client, Config, IsolationLevel, Statement, Transaction};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Fault, Step};
use crate::store::{FleetError, Result};

/// Connection timeout. It is short because a tick's local work waits for the connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Timeout for a response if the network is down.
const PATIENCE: Duration = Duration::from_secs(10);

/// Timeouts for statements and for lock waits. The database also ends a transaction whose client is
/// idle, so that a stopped host holds no locks.
const LIMITS: &str = "SET statement_timeout = '30s'; SET lock_timeout = '20s';
     SET idle_in_transaction_session_timeout = '5s'; SET default_transaction_isolation = 'read committed';
     SET application_name = 'runner'";

/// Plans each statement once per connection, with index scans and without sorting. Otherwise the
/// database may plan statements again while budgets are locked, or read and sort all occurrences
/// because the table's statistics are out of date.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
     SET enable_sort = off; SET jit = off";

/// A connection's prepared statements, keyed by their text.
#[derive(Default)]
pub(super) struct Statements(HashMap<&'static str, Statement>);

impl Statements {
    pub fn get(
        &mut self,
        tx: &mut Transaction<'_>,
        sql: &'static str,
    ) -> Result<Statement, postgres::Error> {
        if let Some(statement) = self.0.get(sql) {
            return Ok(statement.clone());
        }
        let statement = tx.prepare(sql)?;
        self.0.insert(sql, statement.clone());
        Ok(statement)
    }
}

/// A fleet's database in PostgreSQL. It connects on first use, and reconnects after the connection
/// is lost.
pub struct Postgres {
    config: Config,
    live: Option<(Client, Statements)>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may contain a password.
        f.debug_struct("Postgres").field("connected", &self.live.is_some()).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Parses an address, such as `postgresql://runner@db.example/fleet`, without connecting. A
    /// connection to another machine is encrypted unless the address contains `sslmode=disable`.
    ///
    /// # Errors
    /// Returns [`FleetError::Address`]. The message does not contain the address.
    pub fn at(url: &str) -> Result<Self> {
        let mut config: Config = url.parse().map_err(|error| FleetError::Address(chain(&error)))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_ssl_mode() == SslMode::Prefer && !is_on_this_machine(&config) {
            config.ssl_mode(SslMode::Require);
        }
        config.tcp_user_timeout(PATIENCE).keepalives_idle(PATIENCE);
        config.keepalives_interval(PATIENCE / 5).keepalives_retries(3);
        Ok(Self { config, live: None })
    }

    /// Returns a human-readable description of the database, without a password.
    pub fn place(&self) -> String {
        let hosts = self.config.get_hosts().iter().zip(self.config.get_ports().iter().cycle());
        let hosts = hosts.map(|(host, port)| match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(", ");
        let name = self.config.get_dbname().or(self.config.get_user()).unwrap_or("postgres");
        format!("{name} at {hosts}")
    }

    /// Runs one transaction.
    pub(super) fn write<T>(
        &mut self,
        work: impl FnOnce(&mut Step<'_>) -> Result<T, Fault>,
    ) -> Result<T> {
        let done = self.transaction(work);
        if matches!(done, Err(FleetError::Unreachable(_))) {
            self.live = None;
        }
        done
    }

    fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Step<'_>) -> Result<T, Fault>,
    ) -> Result<T> {
        let (client, statements) = self.client()?;
        let build = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let mut step = Step { tx: build.start().map_err(known)?, statements };
        match work(&mut step) {
            Ok(done) => step.tx.commit().map(|()| done).map_err(known),
            Err(Fault::Known(error)) => Err(error),
            Err(Fault::Sql(error)) => Err(known(error)),
        }
    }

    /// Returns the connection, and connects first if necessary.
    pub(super) fn client(&mut self) -> Result<(&mut Client, &mut Statements)> {
        if self.live.as_ref().is_some_and(|(client, _)| client.is_closed()) {
            self.live = None;
        }
        if self.live.is_none() {
            let mut client = self.connect()?;
            client.batch_execute(&format!("{LIMITS}; {PLANS}")).map_err(known)?;
            self.live = Some((client, Statements::default()));
        }
        let live = self.live.as_mut();
        let (client, statements) =
            live.ok_or_else(|| FleetError::Unreachable("there is no connection".to_owned()))?;
        Ok((client, statements))
    }

    /// Opens a new connection.
    pub(super) fn connect(&self) -> Result<Client> {
        self.config.connect(tls()?).map_err(|error| {
            let refused = error.code().is_some_and(|code| {
                *code == SqlState::INVALID_PASSWORD
                    || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
                    || *code == SqlState::INVALID_CATALOG_NAME
            });
            match refused {
                true => FleetError::Denied(chain(&error)),
                false => FleetError::Unreachable(chain(&error)),
            }
        })
    }
}

/// Returns whether all servers of an address are on this machine. If the configuration has numeric
/// addresses, the driver connects to those and uses the names only to check certificates.
fn is_on_this_machine(config: &Config) -> bool {
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(is_local),
        numeric => numeric.iter().all(IpAddr::is_loopback),
    }
}

/// Returns whether a server is on this machine: behind a Unix socket, or at a loopback address.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
    }
}

/// Returns a TLS connector that trusts the certificates trusted by the host.
fn tls() -> Result<MakeRustlsConnect> {
    let provider = rustls::crypto::ring::default_provider().into();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| FleetError::Address(error.to_string()))?;
    Ok(MakeRustlsConnect::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Translates an error from the client or the database.
pub(super) fn known(error: postgres::Error) -> FleetError {
    let Some(code) = error.code() else {
        // An error without a code comes from the connection or from this client.
        return match error.is_closed() || io_error(&error) {
            true => FleetError::Unreachable(chain(&error)),
            false => FleetError::Database(chain(&error)),
        };
    };
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return FleetError::Denied(chain(&error));
    }
    if *code == SqlState::INVALID_SCHEMA_NAME || *code == SqlState::UNDEFINED_TABLE {
        return FleetError::NoFleet;
    }
    // Class 08 means a lost connection, 53 insufficient resources, and 57P a shutdown. A statement
    // that timed out may be retried.
    let transient = ["08", "53", "57P"].iter().any(|class| code.code().starts_with(class))
        || [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE].contains(code)
        || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT;
    match transient {
        true => FleetError::Unreachable(chain(&error)),
        false => FleetError::Database(chain(&error)),
    }
}

fn io_error(error: &postgres::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<std::io::Error>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Joins an error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> SslMode {
        Postgres::at(url).unwrap().config.get_ssl_mode()
    }

    #[test]
    fn another_machine_needs_tls() {
        for url in [
            "postgresql://runner@db.example/fleet",
            "postgresql://runner@10.1.2.3/fleet",
            "postgresql://runner@[2001:db8::1]/fleet",
            "postgresql://runner@localhost,db.example/fleet",
            "postgresql://runner@db.example/fleet?sslmode=prefer",
            "postgresql://runner@localhost.example/fleet",
            "postgresql:///fleet?hostaddr=10.1.2.3",
            "postgresql://localhost/fleet?hostaddr=10.1.2.3",
            "postgresql:///fleet?hostaddr=127.0.0.1,10.1.2.3",
        ] {
            assert_eq!(mode(url), SslMode::Require, "{url}");
        }
    }

    #[test]
    fn this_machine_needs_no_tls() {
        for url in [
            "postgresql://runner@localhost/fleet",
            "postgresql://runner@127.0.0.1:5433/fleet",
            "postgresql://runner@[::1]/fleet",
            "postgresql:///fleet?host=/run/postgresql",
            "postgresql://db.example/fleet?hostaddr=127.0.0.1",
        ] {
            assert_eq!(mode(url), SslMode::Prefer, "{url}");
        }
        assert_eq!(mode("postgresql://db.example/fleet?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgresql://localhost/fleet?sslmode=require"), SslMode::Require);
    }

    #[test]
    fn a_connection_may_take_two_seconds() {
        let limit = |url: &str| Postgres::at(url).unwrap().config.get_connect_timeout().copied();
        assert_eq!(limit("postgresql://db.example/fleet"), Some(CONNECT));
        let own = limit("postgresql://db.example/fleet?connect_timeout=7");
        assert_eq!(own, Some(Duration::from_secs(7)));
    }
}
