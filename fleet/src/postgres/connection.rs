//! The connection to the database: address, TLS, timeouts, and the translation of errors.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::time::Duration;

use runner_engine::time::boot_time;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, IsolationLevel, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Fault, Step};
use crate::store::{FleetError, Result};

/// Connection timeout. It is short because a tick's local work waits for the connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Maximum time for one operation. The database's own timeouts have no effect while it is stopped
/// or the network is down.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time for an operation that transfers large contents or changes many rows.
pub(super) const LONG: Duration = Duration::from_mins(2);

/// Timeouts for statements and for lock waits. The database also ends a transaction whose client is
/// idle, so a stopped host holds no locks.
const LIMITS: &str = "SET statement_timeout = '30s'; SET lock_timeout = '20s';
     SET idle_in_transaction_session_timeout = '5s'; SET default_transaction_isolation = 'read committed';
     SET application_name = 'runner'";

/// Plans each statement once per connection, with index scans and without sorting. Otherwise the
/// database may plan statements again while budgets are locked, or read and sort all occurrences
/// because the table's statistics are out of date.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
     SET enable_sort = off; SET jit = off";

/// A connection's prepared statements, by their text.
pub(super) type Statements = HashMap<&'static str, Statement>;

/// An open connection. Messages are exchanged only while an operation waits.
struct Connection {
    runtime: Runtime,
    client: Client,
    statements: Statements,
}

/// Waits for the responses to an operation until its deadline.
#[derive(Clone, Copy)]
pub(super) struct Wait<'a> {
    pub runtime: &'a Runtime,
    /// The boot time at which the operation fails.
    pub deadline: Duration,
}

impl Wait<'_> {
    pub fn on<T>(
        self,
        response: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        let left = self.deadline.saturating_sub(boot_time());
        let found = self.runtime.block_on(async { timeout(left, response).await });
        let silent = "it accepts connections, but does not respond in time";
        Ok(found.map_err(|_elapsed| FleetError::Unreachable(silent.to_owned()))??)
    }
}

/// A fleet's database in PostgreSQL. It connects on first use, and reconnects after the connection
/// is lost.
pub struct Postgres {
    config: Config,
    live: Option<Connection>,
    /// Maximum time for one operation.
    patience: Duration,
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
    /// Returns [`FleetError::Address`] if the address is invalid. The message does not contain the
    /// address.
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
        Ok(Self { config, live: None, patience: PATIENCE })
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

    /// Shortens the time limit of most operations, for a caller that cannot use a later result. A
    /// limit above the default has no effect.
    pub fn limit(&mut self, limit: Duration) {
        self.patience = limit.min(PATIENCE);
    }

    /// Runs one transaction.
    pub(super) fn write<T>(
        &mut self,
        work: impl FnOnce(&mut Step<'_>) -> Result<T, Fault>,
    ) -> Result<T> {
        self.write_within(self.patience, work)
    }

    /// Runs one transaction that may take up to `limit`.
    pub(super) fn write_within<T>(
        &mut self,
        limit: Duration,
        work: impl FnOnce(&mut Step<'_>) -> Result<T, Fault>,
    ) -> Result<T> {
        let done = self.transaction(limit, work).map_err(FleetError::from);
        if matches!(done, Err(FleetError::Unreachable(_))) {
            self.live = None;
        }
        done
    }

    fn transaction<T>(
        &mut self,
        limit: Duration,
        work: impl FnOnce(&mut Step<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (client, wait, statements) = self.client(limit)?;
        let build = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let mut step = Step { tx: wait.on(build.start())?, wait, statements };
        match work(&mut step) {
            Ok(done) => wait.on(step.tx.commit()).map(|()| done),
            Err(fault) => {
                // Otherwise, the database would keep the locks until the next operation.
                wait.on(step.tx.rollback())?;
                Err(fault)
            }
        }
    }

    /// Returns the connection for an operation that must end within `limit`, and connects first if
    /// necessary.
    pub(super) fn client(
        &mut self,
        limit: Duration,
    ) -> Result<(&mut Client, Wait<'_>, &mut Statements), Fault> {
        let deadline = boot_time().saturating_add(limit);
        if self.live.as_ref().is_some_and(|live| live.client.is_closed()) {
            self.live = None;
        }
        if self.live.is_none() {
            // This connection receives no notifications.
            let (runtime, client) = self.connect(deadline, mpsc::channel(1).0)?;
            let settings = format!("{LIMITS}; {PLANS}");
            Wait { runtime: &runtime, deadline }.on(client.batch_execute(&settings))?;
            self.live = Some(Connection { runtime, client, statements: Statements::new() });
        }
        let live = self.live.as_mut();
        let Connection { runtime, client, statements } =
            live.ok_or_else(|| FleetError::Unreachable("there is no connection".to_owned()))?;
        Ok((client, Wait { runtime, deadline }, statements))
    }

    /// Opens a new connection, which sends a message to `notify` when a notification arrives.
    fn connect(&self, deadline: Duration, notify: Sender<()>) -> Result<(Runtime, Client)> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| FleetError::Unreachable(error.to_string()))?;
        let opened = Wait { runtime: &runtime, deadline }.on(self.config.connect(tls()?));
        let (client, mut connection) = opened.map_err(|fault| match fault {
            Fault::Known(error) => error,
            Fault::Sql(error) => refused(&error),
        })?;
        // This task exchanges all messages. It ends with the connection.
        runtime.spawn(async move {
            while let Some(Ok(message)) = poll_fn(|task| connection.poll_message(task)).await {
                if matches!(message, AsyncMessage::Notification(_)) {
                    // A full channel already contains a message.
                    let _ = notify.try_send(());
                }
            }
        });
        Ok((runtime, client))
    }

    /// Opens a separate connection that listens on a channel.
    pub(super) fn connect_to_listen(
        &self,
        sql: &str,
        notify: Sender<()>,
    ) -> Result<(Runtime, Client)> {
        let deadline = boot_time().saturating_add(self.patience);
        let (runtime, client) = self.connect(deadline, notify)?;
        Wait { runtime: &runtime, deadline }.on(client.batch_execute(sql))?;
        Ok((runtime, client))
    }
}

/// Translates an error from opening a connection.
fn refused(error: &tokio_postgres::Error) -> FleetError {
    let refused = error.code().is_some_and(|code| {
        *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
            || *code == SqlState::INVALID_CATALOG_NAME
    });
    match refused {
        true => FleetError::Denied(chain(error)),
        false => FleetError::Unreachable(chain(error)),
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

impl From<Fault> for FleetError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Known(error) => error,
            Fault::Sql(error) => known(error),
        }
    }
}

/// Translates an error from the client or the database.
fn known(error: tokio_postgres::Error) -> FleetError {
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

fn io_error(error: &tokio_postgres::Error) -> bool {
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
    fn silent_server_times_out() {
        // The kernel accepts the connection, but nobody answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let mut database = Postgres::at(&format!("postgresql://r@127.0.0.1:{port}/fleet")).unwrap();
        database.limit(Duration::from_millis(200));
        let error = database.check_format().unwrap_err();
        assert!(error.is_transient() && error.to_string().ends_with("in time"), "{error}");
        let Err(error) = database.listen() else { panic!("a silent server accepted a listener") };
        assert!(error.is_transient(), "{error}");
    }

    #[test]
    fn default_connect_timeout_is_two_seconds() {
        let limit = |url: &str| Postgres::at(url).unwrap().config.get_connect_timeout().copied();
        assert_eq!(limit("postgresql://db.example/fleet"), Some(CONNECT));
        let own = limit("postgresql://db.example/fleet?connect_timeout=7");
        assert_eq!(own, Some(Duration::from_secs(7)));
    }
}
