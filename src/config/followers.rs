//! Which job follows which: chains that would never begin are refused.

use std::collections::BTreeMap;

use runner_engine::schedule::Trigger;
use runner_text::nearest::nearest;

use super::job::Job;
use super::sources::{ConfigMistake, Sources, wrong};
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
pub(super) fn check_after(
    jobs: &BTreeMap<String, Job>,
    sources: &Sources,
) -> Result<(), ConfigMistake> {
    for (name, job) in jobs {
        let refuse = |why: &str| Err(wrong(sources, &format!("jobs.{name}.trigger"), why));
        let mut chain = vec![name.as_str()];
        let mut follows = before(job);
        while let Some(next) = follows {
            let Some(before_it) = jobs.get(next) else {
                // In a longer chain, the mistake is reported for the job that names the missing
                // one.
                if chain.len() > 1 {
                    break;
                }
                let near = nearest(next, jobs.keys().map(String::as_str))
                    .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                return refuse(&format!("there is no job {next:?}{near}"));
            };
            if next == name {
                if chain.len() == 1 {
                    return refuse("a job cannot follow itself");
                }
                chain.push(name);
                return refuse(&format!("none of these would ever run: {}", chain.join(" after ")));
            }
            if chain.contains(&next) {
                // If the rest of the chain is a circle, the mistake is reported for a job in it.
                break;
            }
            chain.push(next);
            follows = before(before_it);
        }
    }
    Ok(())
}
