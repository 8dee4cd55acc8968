//! Checks the jobs that follow other jobs, and refuses chains that would never start.

use std::collections::BTreeMap;

use runner_engine::schedule::Trigger;

use super::finding::Reason;
use super::job::Job;
use super::reader::Reader;
use super::trigger::TriggerSpec;

/// Returns the job whose completion makes this one due.
fn before(job: &Job) -> Option<&str> {
    match &job.when {
        TriggerSpec::Clock(Trigger::After(after)) => Some(&after.job),
        _ => None,
    }
}

/// Refuses a job that follows a missing job, itself, or a job that directly or indirectly follows
/// it. Such jobs would never run.
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
                    _ => format!(
                        "these jobs wait for each other and would never run: {}",
                        chain.join(" after ")
                    ),
                };
                reader.wrong(&key, why);
                break;
            }
            if chain.contains(&next) {
                // The rest of the chain is a cycle. The error is reported for the jobs in the
                // cycle.
                break;
            }
            let Some(before_it) = jobs.get(next) else {
                // In a longer chain, the error is reported for the job that names the missing job.
                let names = reader.names("jobs").into_iter().chain(jobs.keys().map(String::as_str));
                let names: Vec<&str> = names.collect();
                if chain.len() == 1 && !names.contains(&next) {
                    let why = Reason::from(format!("there is no job {next:?}"));
                    reader.wrong(&key, why.near(next, names));
                }
                break;
            };
            chain.push(next);
            follows = before(before_it);
        }
    }
}
