//! Which job follows which: chains that would never begin are refused.

use std::collections::BTreeMap;

use runner_engine::schedule::Trigger;

use super::job::Job;
use super::reader::{Reader, did_you_mean};
use super::trigger::TriggerSpec;

/// Returns the job whose end makes this one due.
fn before(job: &Job) -> Option<&str> {
    match &job.when {
        TriggerSpec::Clock(Trigger::After(after)) => Some(&after.job),
        _ => None,
    }
}

/// Refuses a job that follows one that is not there, itself, or one that follows it in turn: none of
/// them would ever run.
pub(super) fn check_after(jobs: &BTreeMap<String, Job>, reader: &mut Reader<'_>) {
    for (name, job) in jobs {
        let key = format!("jobs.{name}.trigger");
        let mut chain = vec![name.as_str()];
        let mut follows = before(job);
        while let Some(next) = follows {
            if next == name {
                chain.push(name);
                let why = match chain.len() {
                    2 => "a job cannot follow itself".to_owned(),
                    _ => format!("none of these would ever run: {}", chain.join(" after ")),
                };
                reader.wrong(&key, why);
                break;
            }
            if chain.contains(&next) {
                // If the rest of the chain is a circle, the mistake is reported for a job in it.
                break;
            }
            let Some(before_it) = jobs.get(next) else {
                // In a longer chain, the mistake is reported for the job that names the missing
                // one.
                let names = reader.names("jobs").into_iter().chain(jobs.keys().map(String::as_str));
                let names: Vec<&str> = names.collect();
                if chain.len() == 1 && !names.contains(&next) {
                    let near = did_you_mean(next, names);
                    reader.wrong(&key, format!("there is no job {next:?}{near}"));
                }
                break;
            };
            chain.push(next);
            follows = before(before_it);
        }
    }
}
