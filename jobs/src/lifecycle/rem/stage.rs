//! Stages an entry and the list of entries, and plans their commit.
//!
//! This module must never stage an entry without its list.

use runner_engine::scope::Expect;
use serde_json::json;

use super::super::entry::{self, Entry};
use super::super::manifest::{self, Listed};
use super::super::publish;
use super::RemSpec;
use super::gather::Slice;
use crate::{Context, Finished, JobError};

/// Sets an entry's id and title, and stages the entry together with the list that contains it.
pub fn publish_entry(
    ctx: &mut Context<'_>,
    spec: &RemSpec,
    slice: &Slice,
    entry: Entry,
) -> Result<Finished, JobError> {
    let folder = manifest::folder(spec.agent.as_deref());
    let file = |id: &str| format!("{folder}/{id}.org");
    let (now, known) = (ctx.clock.now(), &slice.listed.manifest);
    let id = manifest::new_id(now, |id| {
        // Two dreams may happen in one minute, and the folder may contain an entry that the list
        // does not contain.
        let listed = known.entries.iter().any(|it| manifest::id_of(&it.file) == Some(id));
        listed || ctx.files.is_there(&file(id))
    });
    let title = format!("rem — {}", now.strftime("%Y-%m-%d %H:%M UTC"));
    let entry = Entry { title, id: id.clone(), ..entry };
    let text = entry::render(&entry);
    let line = first_line(&entry.sections.tale);
    let listed = Listed {
        file: format!("{id}.org"),
        ts: Some(now),
        model: entry.model.clone(),
        line: line.clone(),
        head: slice.head.clone(),
        board: Some(slice.board_digest.clone()),
    };
    let list = format!("{folder}/{}", manifest::FILE);
    ctx.files.stage(&file(&id), text.as_bytes(), Expect::Absent)?;
    let new = known.with(listed);
    ctx.files.stage(&list, new.text().as_bytes(), slice.listed.expect)?;
    ctx.publish = spec.files.commit.then(|| publish::Publish {
        paths: vec![file(&id), list],
        message: publish::message("rem", &line),
        push: spec.files.push,
    });
    let facts = json!({
        "entry": id,
        "agent": spec.agent,
        "by_rule": entry.model == entry::BY_RULE,
        "verdicts": entry.sections.verdicts,
        "claims": entry.claims().len(),
        "unseen": entry.unseen,
    });
    let author = match entry.model == entry::BY_RULE {
        true if !ctx.spender.answers_by_rule() => "the rules".to_owned(),
        _ => ctx.spender.backend_name().to_owned(),
    };
    Ok(Finished {
        headline: format!("{author} dreamt {}", file(&id)),
        facts: facts.as_object().cloned().unwrap_or_default(),
        ..Finished::default()
    })
}

/// Returns the first non-blank line of a tale, truncated to 160 characters.
fn first_line(tale: &str) -> String {
    let line = tale.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim().chars().take(160).collect()
}
