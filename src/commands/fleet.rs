//! `runner fleet`: sets up a fleet's database, joins and leaves a fleet, and shows its hosts, work
//! and budgets. A fleet's settings are read only from the user's file.

use std::collections::BTreeMap;

use jiff::Timestamp;
use runner_engine::outcome::Exit;
use runner_engine::process_id::ProcessIdentity;
use runner_fleet::{FleetStore as _, HostState, Initialized, State};
use schemars::JsonSchema;
use serde::Serialize;

use super::Cli;
use crate::fleet::copies::{self, Keep};
use crate::fleet::figures::{self, FleetFigures};
use crate::fleet::health::{self, FleetHealth};
use crate::fleet::membership::{self, Membership, failure};
use crate::ui::{Failure, Ui, View, show};

/// Share jobs with other machines through a PostgreSQL database
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: runner fleet join night")]
pub struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FleetCommand {
    /// Create the tables of a fleet in its database, once for all hosts
    #[command(after_help = "Example: runner fleet init night")]
    Init(FleetName),
    /// List this host's fleets and their hosts, as read by the last tick
    #[command(after_help = "Example: runner fleet list --json")]
    List,
    /// Show the hosts, the open work and the budgets of a fleet
    #[command(after_help = "Example: runner fleet status night")]
    Status(FleetName),
    /// Let this host offer its jobs to a fleet and take work from it
    #[command(after_help = "Example: runner fleet join night")]
    Join(FleetName),
    /// Take no new work, and finish the runs in progress; `join` reverts this
    #[command(after_help = "Example: runner fleet drain night")]
    Drain(FleetName),
    /// Leave a fleet; refused while this host has open runs in it
    #[command(after_help = "Example: runner fleet leave night")]
    Leave(FleetName),
}

#[derive(Debug, clap::Args)]
struct FleetName {
    /// The NAME in the `[fleet.NAME]` table of your own config.toml
    name: String,
}

impl FleetArgs {
    pub fn run(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        match &self.command {
            FleetCommand::Init(args) => args.init(cli),
            FleetCommand::List => Ok(list(cli)?),
            FleetCommand::Status(args) => args.status(cli),
            FleetCommand::Join(args) => args.join(cli),
            FleetCommand::Drain(args) => args.drain(cli),
            FleetCommand::Leave(args) => args.leave(cli),
        }
    }
}

/// The fleets that this host has joined, as read by the last tick.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(transparent)]
pub(in crate::commands) struct FleetList {
    fleets: Vec<FleetFigures>,
    #[serde(skip)]
    now: Timestamp,
}

impl View for FleetList {
    fn print(&self, _ui: Ui) {
        if self.fleets.is_empty() {
            show::out(
                "no fleet data yet: join a fleet with `runner fleet join NAME`; the next tick reads its data\n",
            );
        }
        for fleet in &self.fleets {
            show::out(&format!("fleet {}: {}\n", fleet.fleet, fleet.line(self.now)));
            let mut rows = vec![show::row(["  HOST", "STATE", "CLAIMS", "LAST SEEN"])];
            for host in &fleet.hosts {
                let state = if host.silent { "SILENT" } else { &host.state };
                let (name, claims) = (format!("  {}", host.host), host.claims.to_string());
                rows.push(show::row([&name, state, &claims, &show::format_minute(host.seen)]));
            }
            show::out(&show::table(&rows));
        }
    }
}

/// Shows the figures of all fleets without connecting to them.
fn list(cli: &Cli<'_>) -> Result<Exit, Failure> {
    cli.ui.show(&FleetList { fleets: figures::all(cli.env), now: cli.env.wall()? });
    Ok(Exit::Done)
}

/// The result of `init`, `join`, `drain` or `leave`.
#[derive(Debug, Serialize)]
struct MembershipView {
    fleet: String,
    /// The host's name in the fleet; empty for `init`.
    host: String,
    /// A description of the change.
    done: String,
}

impl View for MembershipView {
    fn print(&self, ui: Ui) {
        ui.info(&self.done);
    }
}

impl FleetName {
    fn show(&self, cli: &Cli<'_>, host: &str, done: String) -> Exit {
        let view = MembershipView { fleet: self.name.clone(), host: host.to_owned(), done };
        cli.ui.show(&view);
        Exit::Done
    }

    fn member(&self, cli: &Cli<'_>) -> Result<Membership, Failure> {
        Membership::of(cli.env, &self.name)?.ok_or_else(|| {
            Failure::configuration(format!("this host has not joined the fleet {}", self.name))
                .hint(format!("runner fleet join {}", self.name))
        })
    }

    fn init(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let mut database = membership::database(&membership::settings(cli.env, &self.name)?)?;
        let made = database.init().map_err(failure)?;
        let place = database.place();
        let done = match made {
            Initialized::Created => format!("the fleet {} was created in {place}", self.name),
            Initialized::Upgraded => format!("the fleet {} in {place} was upgraded", self.name),
            Initialized::Unchanged => format!("the fleet {} already exists in {place}", self.name),
        };
        Ok(self.show(cli, "", done))
    }

    fn join(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let settings = membership::settings(cli.env, &self.name)?;
        let mut database = membership::database(&settings)?;
        database.check_format().map_err(failure)?;
        let known = Membership::of(cli.env, &self.name)?;
        let mut member = known
            .map_or_else(|| Ok(Membership::new(&self.name, cli.env.wall()?)), Ok::<_, Failure>)?;
        (member.worker, member.draining) = (member.worker_now(), false);
        database.join(&member.info(&settings)).map_err(failure)?;
        member.save(cli.env)?;
        let slots = show::count(settings.slots.into(), "fleet run");
        let done = format!(
            "{} joined the fleet {} and will execute at most {slots} at a time",
            member.host, self.name
        );
        Ok(self.show(cli, &member.host, done))
    }

    fn drain(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let mut member = self.member(cli)?;
        member.draining = true;
        // The file is written first, so that this host takes no more work even if the database
        // cannot be reached.
        member.save(cli.env)?;
        let mut database = membership::database(&membership::settings(cli.env, &self.name)?)?;
        database.set_host_state(&member.host, HostState::Draining).map_err(failure)?;
        let done = format!("{} will finish its current runs and take no new ones", member.host);
        Ok(self.show(cli, &member.host, done))
    }

    fn leave(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let member = self.member(cli)?;
        let mut database = membership::database(&membership::settings(cli.env, &self.name)?)?;
        let rows = database.snapshot().map_err(failure)?.occurrences;
        let open = rows.iter().filter(|row| row.state != State::Settled);
        let (offered, other): (Vec<_>, Vec<_>) = open.partition(|row| row.home == member.host);
        let claimed = other.iter().filter(|row| row.owner.as_ref() == Some(&member.worker));
        let open = offered.len() + claimed.count();
        if open > 0 {
            let open = show::count(open as u64, "open run");
            let later =
                format!("runner fleet drain {0}, and later runner fleet leave {0}", self.name);
            // A draining host claims no runs, but its own jobs still offer runs.
            let hint = match offered.first() {
                Some(row) => {
                    format!(
                        "runner config unset jobs.{}.fleet for each shared job; {later}",
                        row.job
                    )
                }
                None => later,
            };
            return Err(
                Failure::later(format!("{} still has {open} in the fleet", member.host)).hint(hint)
            );
        }
        database.set_host_state(&member.host, HostState::Left).map_err(failure)?;
        member.remove(cli.env)?;
        figures::remove(cli.env, &self.name)?;
        let mut store = cli.env.store()?;
        let (me, now) = (ProcessIdentity::me(), cli.env.wall()?);
        for kept in copies::sweep(cli.env, &mut store, &me, &self.name, (Keep::Nothing, now))? {
            cli.ui.info(&kept);
        }
        Ok(self.show(
            cli,
            &member.host,
            format!("{} has left the fleet {}", member.host, self.name),
        ))
    }

    fn status(&self, cli: &Cli<'_>) -> Result<Exit, Failure> {
        let settings = membership::settings(cli.env, &self.name)?;
        let health = health::of(cli.env, &settings)?;
        let own = Membership::of(cli.env, &self.name)?.map(|member| member.host);
        let status = FleetStatus::of(&self.name, health, own);
        cli.ui.show(&status);
        Ok(if status.findings.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

#[derive(Debug, Serialize)]
struct FleetStatus {
    fleet: String,
    /// The PostgreSQL version and the database, without a password.
    database: String,
    hosts: Vec<HostView>,
    /// The number of occurrences in each state.
    occurrences: BTreeMap<State, u64>,
    /// The occurrences that are not settled.
    open: Vec<OpenView>,
    budgets: Vec<BudgetView>,
    /// The problems that the check found.
    findings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct HostView {
    host: String,
    state: HostState,
    /// Whether the host uses this state folder.
    here: bool,
    tags: Vec<String>,
    version: String,
    /// The time at which the host last joined, checked in or worked on a claim.
    seen: Option<Timestamp>,
    running: u64,
}

#[derive(Debug, Serialize)]
struct OpenView {
    occurrence: String,
    job: String,
    state: State,
    due: Option<Timestamp>,
    /// The worker that runs the occurrence; `None` if no worker has claimed it.
    worker: Option<String>,
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct BudgetView {
    level: String,
    /// The used amount, the reserved amount and the limit of each unit.
    units: BTreeMap<&'static str, (i64, i64, Option<i64>)>,
}

impl FleetStatus {
    fn of(fleet: &str, health: FleetHealth, own: Option<String>) -> Self {
        let FleetHealth { database, snapshot, problems } = health;
        let time = |millis| Timestamp::from_millisecond(millis).ok();
        let mut occurrences = BTreeMap::new();
        for row in &snapshot.occurrences {
            *occurrences.entry(row.state).or_default() += 1;
        }
        let hosts = snapshot.hosts.iter().map(|row| {
            let running = snapshot.occurrences.iter();
            let running = running.filter(|one| one.owner.as_ref() == Some(&row.worker)).count();
            HostView {
                host: row.host.clone(),
                state: row.state,
                here: own.as_ref() == Some(&row.host),
                tags: row.tags.clone(),
                version: row.version.clone(),
                seen: time(row.seen),
                running: running as u64,
            }
        });
        let hosts = hosts.collect();
        let open = snapshot.occurrences.iter().filter(|row| row.state != State::Settled);
        let open = open.map(|row| OpenView {
            occurrence: row.id.clone(),
            job: row.job.clone(),
            state: row.state,
            due: time(row.due),
            worker: row.owner.clone(),
            why: row.why.clone(),
        });
        let budgets = snapshot.budgets.iter().map(|row| BudgetView {
            level: row.level.clone(),
            units: (0..5)
                .map(|unit| {
                    let name = runner_fleet::decide::UNITS[unit];
                    (name, (row.used[unit], row.held[unit], row.limits[unit]))
                })
                .collect(),
        });
        Self {
            fleet: fleet.to_owned(),
            database,
            hosts,
            occurrences,
            open: open.collect(),
            budgets: budgets.collect(),
            findings: problems,
        }
    }
}

impl View for FleetStatus {
    fn print(&self, _ui: Ui) {
        show::out(&format!("fleet {}: {}\n\n", self.fleet, self.database));
        let mut rows = vec![show::row(["HOST", "STATE", "RUNS", "LAST SEEN", "TAGS"])];
        for host in &self.hosts {
            let name =
                if host.here { format!("{} (this host)", host.host) } else { host.host.clone() };
            let seen = host.seen.map(show::format_minute).unwrap_or_default();
            rows.push(show::row([
                &name,
                host.state.as_str(),
                &host.running.to_string(),
                &seen,
                &host.tags.join(", "),
            ]));
        }
        show::out(&show::table(&rows));
        if !self.open.is_empty() {
            let mut rows = vec![show::row(["JOB", "STATE", "DUE", "WORKER", "REASON"])];
            for one in &self.open {
                rows.push(show::row([
                    &one.job,
                    &format!("{:?}", one.state).to_lowercase(),
                    &one.due.map(show::format_minute).unwrap_or_default(),
                    one.worker.as_deref().unwrap_or_default(),
                    one.why.as_deref().unwrap_or_default(),
                ]));
            }
            show::out(&format!("\n{}", show::table(&rows)));
        }
        if !self.budgets.is_empty() {
            let mut rows = vec![show::row(["BUDGET", "UNIT", "USED", "RESERVED", "LIMIT"])];
            for budget in &self.budgets {
                for (unit, (used, held, limit)) in &budget.units {
                    let limit = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
                    rows.push(show::row([
                        &budget.level,
                        unit,
                        &used.to_string(),
                        &held.to_string(),
                        &limit,
                    ]));
                }
            }
            show::out(&format!("\n{}", show::table(&rows)));
        }
        for finding in &self.findings {
            show::complain(finding);
        }
    }
}
