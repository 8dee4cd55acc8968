//! Checks the settings that name a file or folder of the project.
//!
//! | setting | what runner does there |
//! | --- | --- |
//! | `overnight.output_dir` | moves the whole folder to `runs/` beside it and makes it anew |
//! | `curator.worker_dir` | makes, moves and removes files in the subfolders of its queue |
//! | `dream.dreams`, `dream.ideas`, `dream.done`, `dream.specs` | writes or moves single files |
//! | `curator.ideas`, `curator.learnings` | adds single files |
//! | `prompt.to`, `command.artifacts`, `lifecycle.steps`, `lifecycle.daydreams`, a `board` | writes this one file |
//! | `overnight.queue`, `curator.vault_dir`, a `cycle`, `prompt.sources`, `dream.canonical` | reads only, or nothing |
//! | `writes` | decides what the sandbox lets a child write |
//!
//! Only the first is moved as a whole, so it alone must be a folder that runner made:
//! `runner_jobs::overnight::ownership` decides that here from its text, and again at run time from
//! what is there. Must never look at the disk.

use std::collections::BTreeMap;

use runner_engine::publish::RelPath;
use runner_jobs::lifecycle::Files;
use runner_jobs::overnight::{OvernightSpec, ownership};

use super::curator::Curator;
use super::finding::Fix;
use super::job::{Job, OUTPUT};
use super::reader::Reader;

/// Refuses an output folder that overlaps what another setting names: it would be moved away with
/// the folder.
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
        let Ok(output) = ownership::parse(&own.output_dir) else {
            continue;
        };
        let key = format!("jobs.{name}.{OUTPUT}");
        for (setting, path) in &others {
            let Ok(other) = RelPath::new(path) else {
                continue;
            };
            // Nights with one output folder take turns; each moves what the other has left.
            if setting.ends_with(OUTPUT) && other == output {
                continue;
            }
            if other.is_within(&output) || output.is_within(&other) {
                let why = format!(
                    "{:?} overlaps {setting} ({path:?}), and a night moves its whole output folder away",
                    own.output_dir
                );
                reader.forbidden(&key, why, Fix::OutputFolder);
                break;
            }
        }
    }
}
