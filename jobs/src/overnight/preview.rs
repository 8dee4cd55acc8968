//! Plans a night: the changes of the first iteration, and the packets that would result. This
//! module must never write a file or take a lock.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use runner_engine::files::{DOCUMENT, read_text_named};
use runner_engine::git::Git;
use serde_json::json;

use super::OvernightSpec;
use super::commit;
use super::corpus::brief::brief;
use super::corpus::close_loop::close_loop;
use super::corpus::compile::compile;
use super::corpus::defrag::{Options, defrag, merged, suggestions};
use super::corpus::fitness::fitness;
use super::corpus::harvest::harvest;
use super::corpus::health::measure;
use super::corpus::{FOLDER as CORPUS, read};
use super::council::CouncilResult;
use super::facts::Facts;
use super::lock::{FOLDER, RUN_LOCK};
use super::output::{LOG, Output};
use super::packets::{PacketSources, queue};
use super::state::disk;
use super::summary::{GUIDE, RunStatus, Runtime, StepStatus, Summary};
use crate::{AgentFolders, JobError};

/// The input of a dry run.
pub struct NightPreview<'a> {
    pub root: &'a Path,
    pub git: &'a Git,
    pub spec: &'a OvernightSpec,
    pub now: Timestamp,
    pub run_id: &'a str,
    /// The folders of the agents' programs.
    pub agents: &'a AgentFolders,
}

/// Returns the summary of a dry run.
///
/// # Errors
/// Returns an error if the corpus cannot be read.
pub fn preview(seen: &NightPreview<'_>) -> Result<Summary, JobError> {
    let NightPreview { root, spec, .. } = *seen;
    let date = seen.now.to_zoned(TimeZone::UTC).date();
    let mut corpus = read(&root.join(CORPUS)).map_err(disk)?;
    let mut facts = Facts::read(root, seen.git);
    let history = commit::history(root);
    let uses = facts.learn(root, seen.agents, &corpus);
    uses.merged.clone_from(&history.merged);
    let mut uses = uses.clone();
    let before = measure(&corpus, &uses, date);
    let (harvested, changes) = harvest(&corpus, &facts.sources, &history, date);
    corpus.apply(&changes);
    let (closed, changes) = close_loop(&corpus, &uses, date, 0);
    corpus.apply(&changes);
    let (defragged, changes) = defrag(&corpus, &history, Options::default());
    corpus.apply(&changes);
    uses.merged.extend(merged(&defragged));
    let (compiled, changes) = compile(&corpus, date);
    corpus.apply(&changes);
    let after = fitness(&corpus, &uses, date);
    let proposed = suggestions(&corpus, &uses, &history, date, Options::default()).len();
    let pinned = match read_text_named(root, &spec.queue, DOCUMENT) {
        Ok(text) if !spec.queue.is_empty() => queue::parse(&spec.queue, &text),
        _ => Vec::new(),
    };
    let packets = PacketSources {
        root,
        corpus: &corpus,
        health: &before.health,
        facts: &facts,
        pinned: &pinned,
        goal: &spec.goal,
        date,
        output: &spec.output_dir,
        kept: &Output::new(root, &spec.output_dir).kept(seen.run_id),
        command: &spec.morning_command,
        counsel: &CouncilResult::default(),
    }
    .packets();
    let timestamp = format!("{:.0}", seen.now);
    let mut summary = Summary {
        goal: Some(spec.goal.clone()).filter(|goal| !goal.is_empty()),
        repo_root: root.display().to_string(),
        output_dir: spec.output_dir.clone(),
        status: RunStatus::DryRun,
        dry_run: true,
        started_at: timestamp.clone(),
        finished_at: timestamp,
        duration: "0s".to_owned(),
        runtime: runtime(spec),
        metrics_health: serde_json::to_value(&before.health).ok(),
        retrieval_live: Some(json!({
            "precision_at_3": before.bench.precision_at_3, "mrr": before.bench.mrr,
            "questions": before.bench.questions, "nodes": before.bench.nodes,
        })),
        close_loop: Some(
            json!({"promoted": closed.promoted.len(), "considered": closed.considered}),
        ),
        fitness_delta: Some(super::halt::delta(&before.fitness, &after)),
        gain: Some(
            [
                ("harvested", harvested.added.len()),
                ("promoted", closed.promoted.len()),
                ("removed", defragged.removed.len()),
                ("proposed", proposed),
                ("compiled", compiled.len()),
                ("packets", packets.len()),
            ]
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count as u64))
            .collect(),
        ),
        ..Summary::planned(seen.run_id)
    };
    if let Some(goal) = &summary.goal {
        let brief = brief(&corpus, goal, date);
        summary.briefing = Some(json!({
            "nodes": brief.nodes.iter().map(|node| &node.path).collect::<Vec<_>>(), "text": brief.text,
        }));
    }
    for step in &mut summary.steps {
        step.status = StepStatus::Planned;
    }
    summary.dreamscape.weather = "not determined".to_owned();
    summary.dreamscape.visibility = "high".to_owned();
    summary.dreamscape.council = "not convened".to_owned();
    summary.dreamscape.first_move = packets.first().map(|it| it.morning_command.clone());
    summary.recommended = vec!["runner overnight start".to_owned()];
    summary.next_action = summary.recommended[0].clone();
    summary.morning_packets = Some(packets);
    Ok(summary)
}

/// Returns the runtime section for a night that was only planned.
fn runtime(spec: &OvernightSpec) -> Runtime {
    Runtime {
        keep_awake: spec.keep_awake,
        keep_awake_mode: "none".to_owned(),
        lock_path: format!("{FOLDER}/{RUN_LOCK}"),
        log_path: format!("{}/{LOG}", spec.output_dir),
        process_contract_doc: GUIDE.to_owned(),
        report_contract_doc: GUIDE.to_owned(),
        ..Runtime::default()
    }
}

/// Formats a dry run's summary as human-readable lines.
pub fn describe(summary: &Summary) -> Vec<String> {
    let gain = summary.gain.clone().unwrap_or_default();
    let mut lines: Vec<String> = gain
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    let known = summary.metrics_health.as_ref().is_some_and(|it| it["composite"].is_number());
    lines.push(match known {
        true => format!("fitness would change by {:+}", summary.fitness_delta.unwrap_or(0.0)),
        false => "fitness is unknown: no use of any node is known".to_owned(),
    });
    if let Some(first) = summary.morning_packets.iter().flatten().next() {
        lines.push(format!("the first packet: {}", first.title));
    }
    lines
}
