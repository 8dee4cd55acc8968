//! Encodes a [`Snapshot`] with the Prometheus client library. Every label passes through
//! [`Redacted`].

use std::fmt::Error;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use runner_engine::store::{DURATION_LIMITS, UNITS};
use runner_text::redact::Redacted;

use super::Snapshot;
use crate::fleet::figures::{FleetFigures, HostFigures, UnitFigures};

type Labels = Vec<(&'static str, String)>;

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let encoder = &mut encoder;
        self.encode_runs(encoder)?;
        self.encode_durations(encoder)?;
        self.encode_last_successes(encoder)?;
        self.encode_queue(encoder)?;
        self.encode_nights(encoder)?;
        self.encode_budgets(encoder)?;
        self.encode_projects(encoder)?;
        self.encode_fleets(encoder)?;
        self.encode_program(encoder)
    }
}

impl Snapshot {
    fn encode_runs(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Settled runs by outcome and class of failure, including pruned runs";
        let mut family =
            encoder.encode_descriptor("runner_runs", help, None, MetricType::Counter)?;
        for total in &self.totals {
            let labels = labels([
                ("project", total.project.as_str()),
                ("job", &total.job),
                ("kind", &total.kind),
                ("outcome", &total.outcome),
                ("class", &total.class),
            ]);
            let mut metric = family.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&total.runs, None)?;
        }
        Ok(())
    }

    fn encode_durations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (name, help) = ("runner_run_duration", "Durations of settled runs that had started");
        let seconds = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor(name, help, seconds, MetricType::Histogram)?;
        let limits = DURATION_LIMITS.map(f64::from).into_iter().chain([f64::INFINITY]);
        for durations in &self.durations {
            let labels = labels([("project", durations.project.as_str()), ("job", &durations.job)]);
            let buckets: Vec<(f64, u64)> = limits.clone().zip(durations.groups).collect();
            let count = durations.groups.iter().sum();
            let sum = durations.millis as f64 / 1_000.0;
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn encode_last_successes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut last: Vec<(Labels, f64)> = Vec::new();
        let published = ["succeeded", "degraded"];
        for total in self.totals.iter().filter(|it| published.contains(&it.outcome.as_str())) {
            let labels = labels([("project", total.project.as_str()), ("job", &total.job)]);
            let at = seconds(total.last);
            match last.last_mut() {
                // The totals are ordered by project and job.
                Some((known, time)) if *known == labels => *time = time.max(at),
                _ => last.push((labels, at)),
            }
        }
        let help = "When a run of the job last succeeded or was degraded";
        gauge(encoder, "runner_job_last_success_timestamp_seconds", help, last)
    }

    fn encode_queue(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let queues = self.queues.iter();
        let depth = queues.map(|it| (project(it.project.as_str()), it.runs as f64));
        gauge(encoder, "runner_queue_runs", "Queued runs of the project", depth)?;
        let ready = self.queues.iter().filter_map(|it| {
            let at = it.oldest.filter(|at| *at <= self.now)?;
            Some((project(it.project.as_str()), seconds(at)))
        });
        let help = "When the longest-waiting run became ready to start";
        gauge(encoder, "runner_queue_oldest_ready_timestamp_seconds", help, ready)?;
        let help = "The earliest scheduled time that has passed and is not recorded";
        let due = self.oldest_due.map(|at| (Labels::new(), seconds(at)));
        gauge(encoder, "runner_oldest_due_timestamp_seconds", help, due)?;
        let live = [(Labels::new(), self.live_runs as f64)];
        gauge(encoder, "runner_live_runs", "Requested and running runs of all projects", live)
    }

    fn encode_nights(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let opened =
            self.nights.iter().map(|(id, last)| (project(id.as_str()), seconds(last.night.opens)));
        let help = "When the project's last night opened";
        gauge(encoder, "runner_night_opened_timestamp_seconds", help, opened)?;
        let worst = self.nights.iter().filter_map(|(id, last)| {
            let reported = last.reported.as_ref()?;
            let id = id.as_str();
            Some((labels([("project", id), ("outcome", &reported.worst)]), 1.0))
        });
        let help = "The worst outcome in the report of the project's last night";
        gauge(encoder, "runner_night_worst_outcome", help, worst)
    }

    fn encode_budgets(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (mut used, mut left) = (Vec::new(), Vec::new());
        for (id, budget) in self
            .projects
            .iter()
            .flat_map(|it| it.budgets.iter().map(move |budget| (&it.id, budget)))
        {
            let amounts = budget.used.array().into_iter().zip(budget.left.array());
            for (unit, (spent, rest)) in UNITS.into_iter().zip(amounts) {
                let labels = labels([("project", id), ("level", budget.level), ("unit", unit)]);
                used.push((labels.clone(), spent as f64));
                left.extend(rest.map(|rest| (labels, rest as f64)));
            }
        }
        let help = "Spent and reserved amounts of the project's budget; a dollar is 1000000 micros";
        gauge(encoder, "runner_budget_used", help, used)?;
        gauge(encoder, "runner_budget_left", "Amounts left of a limited unit", left)
    }

    fn encode_projects(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let each = |value: fn(&super::ProjectSample) -> Option<f64>| {
            let all = self.projects.iter();
            all.filter_map(move |it| Some((project(&it.id), value(it)?))).collect::<Vec<_>>()
        };
        let paths = self.projects.iter();
        let paths = paths.map(|it| (labels([("project", &it.id), ("path", &it.path)]), 1.0));
        gauge(encoder, "runner_project_info", "The folder of the project", paths)?;
        let next = each(|it| it.next_due.map(seconds));
        let help = "The next scheduled time of a job of the project";
        gauge(encoder, "runner_next_due_timestamp_seconds", help, next)?;
        let (open, waiting) =
            (each(|it| Some(it.alerts as f64)), each(|it| Some(it.proposals as f64)));
        gauge(encoder, "runner_alerts_open", "Open alerts that are not silenced", open)?;
        gauge(encoder, "runner_proposals_waiting", "Proposals waiting for a decision", waiting)?;
        let (stopped, failing) =
            (each(|it| Some(it.stopped as f64)), each(|it| Some(it.failing as f64)));
        gauge(encoder, "runner_jobs_stopped", "Jobs that the circuit breaker stops", stopped)?;
        gauge(encoder, "runner_jobs_failing", "Jobs with a failure marker", failing)
    }

    fn encode_fleets(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let each = |value: fn(&FleetFigures) -> f64| {
            let all = self.fleets.iter();
            all.map(move |it| (labels([("fleet", it.fleet.as_str())]), value(it)))
                .collect::<Vec<_>>()
        };
        let hosts = |value: fn(&HostFigures) -> f64| {
            let all = self.fleets.iter().flat_map(|it| it.hosts.iter().map(move |host| (it, host)));
            all.map(move |(it, host)| {
                (labels([("fleet", it.fleet.as_str()), ("host", &host.host)]), value(host))
            })
            .collect::<Vec<_>>()
        };
        let help = "When the figures of the fleet were read from its database";
        let read = each(|it| seconds(it.read));
        gauge(encoder, "runner_fleet_read_timestamp_seconds", help, read)?;
        let help = "The number of fleet runs that this host executes at the same time";
        gauge(encoder, "runner_fleet_slots", help, each(|it| f64::from(it.slots)))?;
        let seen = hosts(|it| seconds(it.seen));
        let help = "When the host of the fleet was last seen";
        gauge(encoder, "runner_fleet_host_seen_timestamp_seconds", help, seen)?;
        let claims = hosts(|it| it.claims as f64);
        gauge(encoder, "runner_fleet_host_claims", "Claims of the host", claims)?;
        let draining = hosts(|it| f64::from(u8::from(it.state == "draining")));
        let help = "1 if the host accepts no new work";
        gauge(encoder, "runner_fleet_host_draining", help, draining)?;
        let silent = hosts(|it| f64::from(u8::from(it.silent)));
        let help = "1 if the host was not seen for longer than `silent_after`";
        gauge(encoder, "runner_fleet_host_silent", help, silent)?;
        let open = self.fleets.iter().flat_map(|it| {
            let labels = |state: &str| labels([("fleet", it.fleet.as_str()), ("state", state)]);
            it.open.iter().map(move |(state, number)| (labels(state), *number as f64))
        });
        gauge(encoder, "runner_fleet_occurrences", "Occurrences that are not settled", open)?;
        let day = |value: fn(&UnitFigures) -> Option<i64>| {
            let all = self.fleets.iter().flat_map(|it| it.day.iter().map(move |day| (it, day)));
            all.filter_map(move |(it, (unit, figures))| {
                let labels = labels([("fleet", it.fleet.as_str()), ("unit", unit)]);
                Some((labels, value(figures)? as f64))
            })
            .collect::<Vec<_>>()
        };
        let help = "Spent and reserved amounts of the fleet's daily budget";
        let used = day(|it| Some(it.used.saturating_add(it.reserved)));
        gauge(encoder, "runner_fleet_budget_used", help, used)?;
        let help = "The limit of the fleet's daily budget";
        gauge(encoder, "runner_fleet_budget_limit", help, day(|it| it.limit))
    }

    fn encode_program(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let alone = |value: f64| [(Labels::new(), value)];
        if let Some(ticks) = self.ticks {
            let help = "Ticks since the state folder was created";
            let counter = MetricType::Counter;
            let mut family = encoder.encode_descriptor("runner_ticks", help, None, counter)?;
            family.encode_counter::<NoLabelSet, _, u64>(&ticks, None)?;
        }
        let tick = self.last_tick.map(|at| (Labels::new(), seconds(at)));
        gauge(encoder, "runner_last_tick_timestamp_seconds", "When runner last ticked", tick)?;
        let help = "1 if a daemon answers, otherwise 0";
        gauge(encoder, "runner_daemon_up", help, alone(self.daemons as f64))?;
        let sizes = self.database.iter();
        let sizes = sizes.map(|(file, bytes)| (labels([("file", *file)]), *bytes as f64));
        gauge(encoder, "runner_database_size_bytes", "The size of the database's files", sizes)?;
        let help = "When these metrics were generated";
        gauge(encoder, "runner_metrics_timestamp_seconds", help, alone(seconds(self.now)))
    }
}

/// Encodes a gauge with its values by label. A gauge without values is omitted.
fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, f64)>,
) -> Result<(), Error> {
    let mut values = values.into_iter().peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        match labels.is_empty() {
            true => family.encode_gauge(&value)?,
            false => family.encode_family(&labels)?.encode_gauge(&value)?,
        }
    }
    Ok(())
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name, Redacted::of(value).into_string())).into()
}

fn project(id: &str) -> Labels {
    labels([("project", id)])
}

fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1_000.0
}
