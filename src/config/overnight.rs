//! Checks of a night's own settings.

use runner_engine::publish::RelPath;
use runner_jobs::overnight::OvernightSpec;

use super::paths;

/// Checks the settings. The error holds the key and the reason.
pub(super) fn check(own: &OvernightSpec) -> Result<(), (&'static str, String)> {
    if !own.queue.is_empty() {
        RelPath::new(&own.queue).map_err(|error| ("queue", error.to_string()))?;
        if paths::reserved(&own.queue, &[]).is_some() {
            return Err(("queue", format!("{:?} belongs to git", own.queue)));
        }
    }
    if !(0.0..=1.0).contains(&own.plateau_epsilon) {
        let why = format!("it must be from 0 to 1, it is {}", own.plateau_epsilon);
        return Err(("plateau_epsilon", why));
    }
    if !(2..=1000).contains(&own.plateau_window) {
        let why = format!("it must be from 2 to 1000, it is {}", own.plateau_window);
        return Err(("plateau_window", why));
    }
    if own.checkpoint_max_mb == 0 {
        return Err((
            "checkpoint_max_mb",
            "it must be 1 at least, it is 0".to_owned(),
        ));
    }
    if let Some(name) = own
        .runners
        .iter()
        .enumerate()
        .find_map(|(at, name)| own.runners[..at].contains(name).then_some(name))
    {
        return Err(("runners", format!("{name:?} is named twice")));
    }
    if own.council_timeout == 0 {
        return Err(("council_timeout", "it must be 1s at least".to_owned()));
    }
    if own.morning_command.trim().is_empty() {
        return Err(("morning_command", "it is empty".to_owned()));
    }
    Ok(())
}
