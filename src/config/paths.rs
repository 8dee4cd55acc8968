//! Checks that no overnight job's output folder overlaps a path in the `[curator]` or `[lifecycle]`
//! settings or in `Kind::paths` of a job. Runner uses the paths in settings as follows:
//!
//! | setting | operation |
//! | --- | --- |
//! | `overnight.output_dir` | moves the whole folder to `runs/` beside it and creates it again |
//! | `curator.worker_dir` | creates, moves and removes files in the subfolders of the queue |
//! | `dream.dreams`, `dream.ideas`, `dream.done`, `dream.specs` | writes or moves single files |
//! | `sessions.folder` | writes single files |
//! | `curator.ideas`, `curator.learnings` | adds single files |
//! | `prompt.to`, `command.artifacts`, `lifecycle.steps`, `lifecycle.daydreams`, a `board` | writes only this file |
//! | `overnight.queue`, `curator.vault_dir`, a `cycle`, `prompt.sources`, `dream.canonical` | reads only, or does not access the path |
//! | `writes` | lets a child write this path |
//!
//! Runner moves only `overnight.output_dir` as a whole, so only this folder must be one that runner
//! created. A run checks this with `runner_jobs::overnight::ownership`. This module must never
//! access the disk.

use std::collections::BTreeMap;

use runner_engine::publish::RelPath;
use runner_jobs::lifecycle::Files;
use runner_jobs::overnight::{OvernightSpec, ownership};

use super::curator::Curator;
use super::finding::Fix;
use super::job::{Job, OUTPUT};
use super::reader::Reader;

/// Refuses an output folder that overlaps the path of another setting, because a night would move
/// the other setting's files away.
pub(super) fn check(
    jobs: &BTreeMap<String, Job>,
    curator: &Curator,
    lifecycle: &Files,
    reader: &mut Reader<'_>,
) {
    let nights =
        jobs.iter().filter_map(|(name, job)| Some((name, job.spec.kind.of::<OvernightSpec>()?)));
    let nights: Vec<(&String, &OvernightSpec)> = nights.collect();
    if nights.is_empty() {
        return;
    }
    let mut others = vec![
        ("curator.worker_dir".to_owned(), curator.spec.worker_dir.clone()),
        ("curator.ideas".to_owned(), curator.spec.ideas.clone()),
        ("curator.learnings".to_owned(), curator.spec.learnings.clone()),
        ("lifecycle.steps".to_owned(), lifecycle.steps.clone()),
        ("lifecycle.daydreams".to_owned(), lifecycle.daydreams.clone()),
    ];
    for (name, job) in jobs {
        let paths = job.spec.kind.paths().into_iter();
        others.extend(paths.map(|(setting, path)| (format!("jobs.{name}.{setting}"), path)));
    }
    for (name, own) in nights {
        let Ok(output) = ownership::parse(&own.output_dir) else { continue };
        let key = format!("jobs.{name}.{OUTPUT}");
        for (setting, path) in &others {
            let Ok(other) = RelPath::new(path) else { continue };
            // Overnight jobs may share an output folder: each run moves the previous run's results
            // out of the way.
            if setting.ends_with(OUTPUT) && other == output {
                continue;
            }
            if other.is_within(&output) || output.is_within(&other) {
                let why = format!(
                    "{:?} overlaps {setting} ({path:?}), but each night moves the previous output folder away",
                    own.output_dir
                );
                reader.forbidden(&key, why, Fix::OutputFolder);
                break;
            }
        }
    }
}
