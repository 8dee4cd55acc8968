//! Checks that ticks are run: examines the host's timer as it was set up, the daemon, and the time
//! of the last tick.

use std::fs;
use std::path::Path;

use jiff::SignedDuration;
use runner_engine::file_lock::{FileLock, LockMode};

use super::DoctorFinding;
use crate::daemon::client::Client;
use crate::env::Env;
use crate::setup::hosts::{self, HostScheduler, is_awake, lingers, units};
use crate::setup::plan;
use crate::setup::record::{self, InstalledHost, SetupRecord};
use crate::setup::{SchedulerKind, crontab, environment, text_at};
use crate::ui::show;
use runner_engine::files::{SMALL, open_host, read_text_host, read_text_proc};
use runner_text::shell_word;

/// Maximum time without a tick. Host timers tick every quarter of an hour.
const SILENCE: SignedDuration = SignedDuration::from_mins(35);

pub fn findings(home: &Env, record: &SetupRecord) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    if record.pending {
        found.push(
            DoctorFinding::error("setup", "a setup was started but not finished")
                .hint("runner setup --apply"),
        );
    }
    for (kind, published) in &record.hosts {
        found.extend(whole(home, record, *kind, published));
    }
    if record.hosts.keys().any(|kind| *kind != SchedulerKind::Manual) {
        if let Err(failure) = environment::read(&home.environment_file()) {
            found.push(DoctorFinding::failure("environment", &failure));
        }
        if let Err(failure) = environment::credentials(&home.credentials_file()) {
            found.push(DoctorFinding::failure("keys", &failure));
        }
    }
    found.extend(twice(home, record));
    let ticks = silence(home, record, &found);
    found.extend(ticks);
    found
}

/// Checks that a scheduler's files, links and crontab lines are those that this program would
/// install, and that systemd or cron is active.
fn whole(
    home: &Env,
    record: &SetupRecord,
    kind: SchedulerKind,
    published: &InstalledHost,
) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    let again = "runner setup --apply";
    for (path, texts) in &published.files {
        let place = path.display().to_string();
        match text_at(path) {
            Ok(Some(text)) if texts.contains(&text) => {}
            Ok(Some(_)) => found.push(
                DoctorFinding::warning(&place, "was changed after it was created")
                    .hint(format!("mv {0} {0}.old && {again}", shell_word(path.display()))),
            ),
            Ok(None) => found.push(DoctorFinding::error(&place, "is gone").hint(again)),
            Err(failure) => found.push(DoctorFinding::failure(&place, &failure)),
        }
    }
    for (path, to) in &published.links {
        if !fs::read_link(path).is_ok_and(|found| found == *to) {
            found.push(
                DoctorFinding::error(
                    path.display().to_string(),
                    "is gone, so its unit is not started at boot",
                )
                .hint(again),
            );
        }
    }
    let wanted = match HostScheduler::of(kind, home, &record.ticks()) {
        Ok(host) => Some(host),
        Err(failure) => {
            found.push(DoctorFinding::failure("setup", &failure));
            None
        }
    };
    for file in wanted.iter().flat_map(|host| &host.files) {
        let old = published.files.get(&file.path).is_some_and(|texts| !texts.contains(&file.text));
        if old {
            found.push(
                DoctorFinding::warning(
                    file.path.display().to_string(),
                    "was generated for another location of runner, other minutes or an older template",
                )
                .hint(again),
            );
        }
    }
    match kind {
        SchedulerKind::Systemd => found.extend(systemd(home, record, published)),
        SchedulerKind::Cron => match crontab::read() {
            Err(failure) => found.push(DoctorFinding::failure("crontab", &failure)),
            Ok(text) => {
                let there = crontab::body(&text.unwrap_or_default(), &home.owner());
                let wanted = wanted.and_then(|host| host.crontab);
                if there.is_none() {
                    found.push(
                        DoctorFinding::error("crontab", "runner's lines are gone").hint(again),
                    );
                } else if wanted.is_some() && there != wanted {
                    found.push(
                        DoctorFinding::warning(
                            "crontab",
                            "runner's lines differ from those that setup would write now",
                        )
                        .hint(again),
                    );
                }
                if !cron_runs() {
                    found.push(
                        DoctorFinding::error("cron", "no cron daemon is running")
                            .hint("service cron start"),
                    );
                }
            }
        },
        _ => {}
    }
    found
}

fn systemd(home: &Env, record: &SetupRecord, published: &InstalledHost) -> Vec<DoctorFinding> {
    let unit = record.ticks().unit();
    let mut found = Vec::new();
    if let Err(why) = hosts::ask_systemd() {
        found.push(
            DoctorFinding::warning("systemd", format!("`systemctl --user` does not answer here, though it may where you are logged in: {why}"))
                .hint("export XDG_RUNTIME_DIR=/run/user/$(id -u) && runner doctor"),
        );
    } else if !is_awake(unit) {
        found.push(
            DoctorFinding::error(unit, "is not active, or is older than its file")
                .hint("runner setup --apply"),
        );
    }
    if lingers() == Some(false) {
        found.push(
            DoctorFinding::warning("linger", "the timer ends with your last session")
                .hint("loginctl enable-linger"),
        );
    }
    // `systemd-analyze` also checks units that the installed ones depend on, so only errors that
    // mention runner's units are reported.
    let files: Vec<String> =
        published.files.keys().map(|path| path.display().to_string()).collect();
    let words = [&["systemd-analyze", "--user", "verify"].map(str::to_owned)[..], &files].concat();
    if let Err(why) = plan::run(&words)
        && (why.contains("runner-tick") || why.contains("runner-daemon"))
    {
        found.push(DoctorFinding::error(units(home).display().to_string(), why));
    }
    found
}

/// Warns if there are several schedulers. Nothing runs twice, but after one is removed, the others
/// remain in effect.
fn twice(home: &Env, record: &SetupRecord) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    let mut units = false;
    let mut kinds: Vec<&str> = record.hosts.keys().map(|kind| kind.as_str()).collect();
    if let Ok(Some(text)) = crontab::read() {
        let ours = crontab::body(&text, &home.owner()).is_some();
        if crontab::ticks_otherwise(&text, &home.owner())
            || ours && !record.hosts.contains_key(&SchedulerKind::Cron)
        {
            kinds.push("a line of the crontab that is not in the record");
        }
    }
    if !record.hosts.contains_key(&SchedulerKind::Systemd)
        && hosts::units(home).join(record::TIMER).exists()
    {
        kinds.push("a systemd timer that is not in the record");
        units = true;
    }
    if kinds.len() > 1 {
        found.push(
            DoctorFinding::warning(
                "schedulers",
                format!(
                    "several schedulers run ticks: {}; nothing is done twice, but runner does not remove a scheduler that it did not set up",
                    kinds.join(", ")
                ),
            )
            .hint(match units {
                true => format!(
                    "systemctl --user disable --now {}; rm {}",
                    record::TIMER,
                    shell_word(hosts::units(home).join(record::TIMER).display())
                ),
                false => "crontab -e".to_owned(),
            }),
        );
    }
    found
}

/// Checks that a tick has run recently. `timers` are the findings about the host's timers.
fn silence(home: &Env, record: &SetupRecord, timers: &[DoctorFinding]) -> Vec<DoctorFinding> {
    let daemon = Client::connect(home).map(|mut daemon| daemon.status());
    if let Some(Err(failure)) = &daemon {
        return vec![DoctorFinding::failure("daemon", failure)];
    }
    let none = record.hosts.keys().all(|kind| *kind == SchedulerKind::Manual);
    let clocks = home.store_to_read().ok().flatten();
    let clocks = clocks.is_some_and(|store| store.has_clocks().unwrap_or(false));
    if daemon.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if none && clocks {
        found.push(
            DoctorFinding::warning("timers", "no host timer is set up and no daemon is running")
                .hint("runner setup --apply"),
        );
    }
    let Ok(now) = home.wall() else {
        return found;
    };
    match home.last_tick() {
        Some(last) if now.duration_since(last) < -SignedDuration::from_mins(5) => found.push(
            DoctorFinding::error(
                "clock",
                format!(
                    "the last tick is in the future, at {}: the clock was wrong then or is wrong now (`date` shows it)",
                    show::format_time(last)
                ),
            )
            .hint("runner tick"),
        ),
        Some(last) if now.duration_since(last) > SILENCE && (clocks || !none) => found.push(
            DoctorFinding::error(
                "timers",
                format!("`runner tick` has not run since {}", show::format_time(last)),
            )
            .hint("runner tick"),
        ),
        None if !none => {
            let what = match timers.iter().any(DoctorFinding::is_wrong) {
                true => "`runner tick` has not run yet",
                false => "`runner tick` has not run yet; the timer starts it within 15 minutes",
            };
            found.push(DoctorFinding::note("timers", what).hint("runner setup --status"));
        }
        Some(last) if !none => found.push(DoctorFinding::note(
            "timers",
            format!(
                "{} is set up; the last tick was at {}",
                record.hosts.keys().map(|kind| kind.as_str()).collect::<Vec<_>>().join(" and "),
                show::format_time(last)
            ),
        )),
        _ => {}
    }
    found
}

/// Reports whether a cron daemon is running, according to the PID files of the Debian, Red Hat and
/// BSD versions.
pub fn cron_runs() -> bool {
    let named = ["/run/crond.pid", "/var/run/crond.pid", "/var/run/cron.pid"];
    let held = |path: &&str| {
        let Ok(file) = open_host(path) else {
            return false;
        };
        // A cron daemon usually holds a lock on its PID file. A cron daemon that does not lock the
        // file is recognized by its live process.
        if FileLock::take(file, LockMode::Shared).is_err() {
            return true;
        }
        let pid = read_text_host(path, SMALL).unwrap_or_default();
        let pid = pid.trim();
        let name = read_text_proc(Path::new("/proc").join(pid).join("comm"));
        !pid.is_empty() && name.is_ok_and(|name| name.contains("cron"))
    };
    named.iter().any(held)
}
