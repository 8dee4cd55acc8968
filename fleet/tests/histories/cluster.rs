//! Starts a PostgreSQL server for the tests in a temporary folder, under another user if the tests
//! run as root.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use runner_fleet::Postgres;
use tempfile::TempDir;

/// The folder below which Debian installs the server's programs, by version.
const VERSIONS: &str = "/usr/lib/postgresql";

pub struct Cluster {
    folder: TempDir,
    bin: PathBuf,
    port: u16,
    user: Option<(u32, u32)>,
}

/// Returns the folder with the server's programs, if a server is installed.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(VERSIONS)
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}

/// Returns the ids of the user `nobody` if the tests run as root, because PostgreSQL refuses to run
/// as root.
fn other_user() -> Option<(u32, u32)> {
    let me = fs::metadata("/proc/self").ok()?;
    if std::os::unix::fs::MetadataExt::uid(&me) != 0 {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.starts_with("nobody:"))?;
    let mut ids = line.split(':').skip(2).map(str::parse);
    Some((ids.next()?.ok()?, ids.next()?.ok()?))
}

impl Cluster {
    /// Starts a server. If no server is installed, reports a skipped check and returns `None`.
    pub fn start(check: &str) -> Option<Self> {
        let Some(bin) = programs() else {
            skipped(check);
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let user = other_user();
        if let Some((uid, gid)) = user {
            chown(&data, Some(uid), Some(gid)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let cluster = Self { folder, bin, port, user };
        let data = data.to_str().unwrap();
        cluster.run("initdb", &["-D", data, "-U", "runner", "-A", "trust", "--no-sync"]);
        let mut settings = fs::OpenOptions::new()
            .append(true)
            .open(Path::new(data).join("postgresql.conf"))
            .unwrap();
        writeln!(
            settings,
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\n\
             fsync = off\nmax_connections = 60\nshared_buffers = 64MB\nlog_min_messages = panic"
        )
        .unwrap();
        cluster.control(&["start"]);
        Some(cluster)
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let path = self.bin.join(program);
        let mut command = match self.user {
            Some((uid, gid)) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
                command.arg("--clear-groups").arg(path);
                command
            }
            None => Command::new(path),
        };
        let log = fs::File::create(self.folder.path().join(program)).unwrap();
        // The server inherits these streams and keeps them open, so they must not be pipes.
        let status = command
            .args(arguments)
            .current_dir("/")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .status()
            .unwrap();
        let text = fs::read_to_string(self.folder.path().join(program)).unwrap_or_default();
        assert!(status.success(), "{program} {arguments:?}: {status}\n{text}");
    }

    fn control(&self, arguments: &[&str]) {
        let data = self.folder.path().join("data");
        let mut all = vec!["-D", data.to_str().unwrap(), "-w", "-s"];
        all.extend(arguments);
        self.run("pg_ctl", &all);
    }

    /// Restarts the server without a clean shutdown, as after a power failure.
    pub fn crash(&self) {
        self.control(&["restart", "-m", "immediate"]);
    }

    /// Returns the address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgresql://runner@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs statements in a database.
    pub fn sql(&self, database: &str, sql: &str) {
        let mut client = postgres::Client::connect(&self.url(database), postgres::NoTls).unwrap();
        client.batch_execute(sql).unwrap();
    }

    /// Creates a database with a fleet.
    pub fn fleet(&self, name: &str) -> Postgres {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        let mut store = Postgres::at(&self.url(name)).unwrap();
        assert_eq!(store.init().unwrap(), runner_fleet::Initialized::Created);
        store
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.control(&["stop", "-m", "immediate"]);
            return;
        }
        let data = self.folder.path().join("data");
        let _ends_with_the_machine = Command::new("setpriv")
            .args(self.user.iter().flat_map(|(uid, gid)| {
                [format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]
            }))
            .arg(self.bin.join("pg_ctl"))
            .args(["-D", data.to_str().unwrap(), "-s", "stop", "-m", "immediate"])
            .status();
    }
}

/// Reports a check that was skipped because no server is installed, as `tests/skips.sh` does.
fn skipped(check: &str) {
    static LINE: OnceLock<()> = OnceLock::new();
    println!("{check}: skipped 1: PostgreSQL is not installed");
    LINE.get_or_init(|| {
        if let Some(path) = std::env::var_os("RUNNER_SKIPS") {
            let line = format!("pg_ctlcluster\t{check}: PostgreSQL is not installed\n");
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            file.unwrap().write_all(line.as_bytes()).unwrap();
        }
    });
}
