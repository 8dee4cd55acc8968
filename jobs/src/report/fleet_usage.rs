//! The budget usage of the runs executed by a fleet's hosts, by fleet and host.
//!
//! A fleet has its own budget, so its usage does not count towards the night's budgets. The figures
//! are the facts that the home host recorded with each result. Lost claims have no result and are
//! not included.

use runner_engine::store::{Amounts, Budget};
use runner_text::counted;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::budget_usage::{UNITS, format_amount};
use super::run_line::RunLine;

/// The names of the facts in which the home host records the work done by a fleet host for a run.
pub mod facts {
    /// The name of the fleet.
    pub const FLEET: &str = "fleet";
    /// The host that did the work.
    pub const HOST: &str = "fleet_host";
    /// The amounts used by the work, as `Amounts`.
    pub const USED: &str = "fleet_used";
    /// The fleet's daily limit, as `Budget`.
    pub const LIMIT: &str = "fleet_limit";
}

/// One fleet's usage by the runs of a night.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct FleetUsage {
    pub fleet: String,
    /// The hosts that did the work, ordered by name.
    pub hosts: Vec<HostUsage>,
    /// The sum of the hosts' usage, which was charged to the fleet's budget.
    pub spent: Amounts,
    /// The limit per calendar day in UTC, for all projects and hosts of the fleet.
    pub limit: Budget,
}

/// The usage of one fleet host.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct HostUsage {
    pub host: String,
    /// The jobs whose runs the host executed, in the order of the report.
    pub jobs: Vec<String>,
    pub spent: Amounts,
}

/// Returns the fleet host that did the work of a run, if any.
pub fn host(run: &RunLine) -> Option<&str> {
    run.facts.get(facts::HOST)?.as_str()
}

/// Returns the usage of each fleet, ordered by name.
pub fn of_runs(runs: &[RunLine]) -> Vec<FleetUsage> {
    let mut fleets: Vec<FleetUsage> = Vec::new();
    for run in runs {
        let Some(name) = run.facts.get(facts::FLEET).and_then(Value::as_str) else { continue };
        let Some(worker) = host(run) else { continue };
        let used: Amounts = fact(&run.facts, facts::USED);
        let at = fleets.iter().position(|it| it.fleet == name).unwrap_or_else(|| {
            fleets.push(FleetUsage {
                fleet: name.to_owned(),
                hosts: Vec::new(),
                spent: Amounts::default(),
                limit: Budget::default(),
            });
            fleets.len() - 1
        });
        let fleet = &mut fleets[at];
        fleet.spent = fleet.spent.plus(used);
        fleet.limit = fact(&run.facts, facts::LIMIT);
        match fleet.hosts.iter_mut().find(|it| it.host == worker) {
            Some(known) => {
                known.spent = known.spent.plus(used);
                known.jobs.push(run.job.clone());
            }
            None => fleet.hosts.push(HostUsage {
                host: worker.to_owned(),
                jobs: vec![run.job.clone()],
                spent: used,
            }),
        }
    }
    fleets.sort_by(|a, b| a.fleet.cmp(&b.fleet));
    fleets.iter_mut().for_each(|fleet| fleet.hosts.sort_by(|a, b| a.host.cmp(&b.host)));
    fleets
}

/// Returns a fact, or the default if the fact is missing or has an unexpected type.
fn fact<T: Default + DeserializeOwned>(facts: &Map<String, Value>, name: &str) -> T {
    let found = facts.get(name).cloned();
    found.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}

impl FleetUsage {
    /// Describes the usage line by line: one line for each host, then one with the sum and the
    /// limits.
    pub fn lines(&self) -> Vec<String> {
        let hosts = self.hosts.iter().map(|it| {
            let runs = counted(it.jobs.len(), "run");
            let mut jobs: Vec<&str> = Vec::new();
            for job in &it.jobs {
                if !jobs.contains(&job.as_str()) {
                    jobs.push(job);
                }
            }
            format!("{} executed {runs} ({}): {}", it.host, jobs.join(", "), amounts(it.spent))
        });
        let limits = self.limit.array().into_iter().zip(UNITS).filter_map(|(limit, unit)| {
            let amount = format_amount(unit, limit?);
            Some(if unit == "money" || unit == "time" {
                amount
            } else {
                format!("{amount} {unit}")
            })
        });
        let limits: Vec<String> = limits.collect();
        let limits = match limits.is_empty() {
            true => "which has no limit".to_owned(),
            false => format!("whose daily limit is {}", limits.join(", ")),
        };
        let sum = format!(
            "total: {} of the budget of the fleet {}, {limits}",
            amounts(self.spent),
            self.fleet
        );
        hosts.chain([sum]).collect()
    }
}

/// Formats the amounts that are not zero, or returns `nothing`.
fn amounts(spent: Amounts) -> String {
    let all = spent.array().into_iter().zip(UNITS).filter(|(amount, _)| *amount > 0);
    let all: Vec<String> = all
        .map(|(amount, unit)| match unit {
            "money" | "time" => format_amount(unit, amount),
            _ => counted(amount, unit.strip_suffix('s').unwrap_or(unit)),
        })
        .collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample_tests::run;
    use super::*;

    #[test]
    fn fleet_usage_is_summed_by_host() {
        let of = |job: &str, host: &str, calls: u64| {
            let mut line = run(job, "dream");
            for (name, value) in [
                (facts::FLEET, json!("night")),
                (facts::HOST, json!(host)),
                (facts::USED, json!({ "calls": calls, "seconds": 60 })),
                (facts::LIMIT, json!({ "calls": 9 })),
            ] {
                line.facts.insert(name.to_owned(), value);
            }
            line
        };
        let runs = [
            of("a", "two", 2),
            run("local", "command"),
            of("b", "one", 3),
            of("c", "two", 1),
            of("a", "two", 0),
        ];
        let found = of_runs(&runs);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].spent, Amounts { calls: 6, seconds: 240, ..Amounts::default() });
        assert_eq!(
            found[0].lines(),
            [
                "one executed 1 run (b): 3 calls, 1 min 0 s",
                "two executed 3 runs (a, c): 3 calls, 3 min 0 s",
                "total: 6 calls, 4 min 0 s of the budget of the fleet night, whose daily limit is 9 calls",
            ]
        );
        assert_eq!(of_runs(&runs[1..2]), []);
    }
}
