//! A pass that is answered by a program that runner does not start.
//!
//! ```text
//! runner dream delta ──> request + record of the offered contents ──> the program
//!                                        │                               │ its answer, in a file
//!                                        └──────> runner dream submit <──┘
//! ```
//!
//! The record names the contents that the request showed. This module must never let an answer
//! apply to another content: an idea that has changed since the request stays selected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use runner_backends::{Reply, Stop};
use runner_engine::digest::Digest;
use runner_engine::files::{DOCUMENT, WriteError, read_host, write_atomic};
use runner_engine::outcome::Class;
use runner_text::counted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::proposal::Offer;
use super::recalled;
use super::spec::DreamSpec;
use crate::{Context, JobError};

/// The key of the contents in the offer of an external request.
const DIGESTS: &str = "digests";
/// The recording keys for the record and for the answer.
const OFFERED: &str = "offered";
const ANSWER: &str = "submitted answer";

/// The ideas that the last external request offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offered {
    /// The ideas that were shown.
    pub sources: Vec<String>,
    /// The contents of these ideas, and of the ideas that they may be merged into.
    pub digests: BTreeMap<String, Digest>,
}

impl Offered {
    /// Returns the path of the record. Dream jobs with different folders have different records.
    fn path(cache: &Path, spec: &DreamSpec) -> PathBuf {
        cache.join(format!("dream-offered-{}.json", spec.folders_digest()))
    }

    /// Reads the record of an external request from its offer.
    pub fn of_request(offer: &Value) -> Option<Self> {
        serde_json::from_value(offer.clone()).ok()
    }

    /// Writes the record, in place of the one of the request before.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn save(&self, cache: &Path, spec: &DreamSpec) -> Result<(), WriteError> {
        let bytes = serde_json::to_vec(self).expect("paths and hashes are JSON");
        write_atomic(&Self::path(cache, spec), &bytes, 0o600)
    }

    /// Reads the record, or returns `None` if there is none.
    pub fn load(cache: &Path, spec: &DreamSpec) -> Option<Self> {
        serde_json::from_slice(&read_host(Self::path(cache, spec), DOCUMENT).ok()?).ok()
    }

    /// Adds the contents of an offer to the offer of its request.
    pub(super) fn note(offer: &Offer, request: &mut Value) {
        request[DIGESTS] = json!(offer.digests);
    }

    /// Replaces the current contents in an offer by those that the request showed, so that the
    /// answer counts only where they are the same.
    pub(super) fn restore(&self, offer: &mut Offer) {
        for (path, digest) in &mut offer.digests {
            if let Some(shown) = self.digests.get(path) {
                *digest = *shown;
            }
        }
    }
}

/// The answer to an external request.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub(super) offered: Offered,
    answer: String,
}

impl Submission {
    /// Reads the answer that this run was given, or returns `None` if a backend answers.
    ///
    /// # Errors
    /// Returns [`JobError::Nothing`] if there is no request, and a failure of class `environment`
    /// if the answer cannot be read.
    pub(super) fn read(ctx: &Context<'_>, spec: &DreamSpec) -> Result<Option<Self>, JobError> {
        let Some(file) = &spec.answer_file else { return Ok(None) };
        if ctx.recording.replays() {
            let offered = recalled(&ctx.recording, OFFERED)?;
            let answer = ctx.recording.recall(ANSWER, "");
            let bytes = answer.ok().and_then(|it| it.content).map(|(_, bytes)| bytes);
            let answer = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
            return Ok(Some(Self { offered, answer }));
        }
        let Some(offered) = Offered::load(ctx.files.cache(), spec) else {
            let why = "there is no request to answer; `runner dream delta --json` prints one";
            return Err(JobError::Nothing(why.to_owned()));
        };
        let bytes = read_host(file, DOCUMENT).map_err(|error| {
            JobError::failed(Class::Environment, format!("the answer {file}: {error}"))
        })?;
        ctx.recording.note(OFFERED, "", json!(offered), None);
        ctx.recording.note(ANSWER, "", Value::Null, Some(&bytes));
        let answer = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Some(Self { offered, answer }))
    }

    /// Returns the answer in the form of a backend's reply.
    pub(super) fn reply(&self) -> Reply {
        Reply {
            text: self.answer.clone(),
            value: serde_json::from_str(&self.answer).ok(),
            usage: None,
            stop: Stop::End,
            notes: Vec::new(),
        }
    }

    /// Describes who answered, for the report.
    pub(super) fn described(&self) -> String {
        let ideas = counted(self.offered.sources.len(), "idea");
        format!(
            "answered by `runner dream submit` for a request with {ideas}; no backend was asked"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_a_request_restores_the_contents_that_were_shown() {
        let [old, new] = ["old", "new"].map(|text| Digest::of(text.as_bytes()));
        let now = |digest| Offer {
            sources: vec!["ideas/a.md".to_owned()],
            digests: BTreeMap::from([("ideas/a.md".to_owned(), digest)]),
            ..Offer::default()
        };
        let mut request = json!({"sources": ["ideas/a.md"], "destinations": []});
        assert_eq!(Offered::of_request(&request), None, "a backend's request has no contents");
        Offered::note(&now(old), &mut request);
        let offered = Offered::of_request(&request).unwrap();
        assert_eq!((&offered.sources, &offered.digests), (&now(old).sources, &now(old).digests));
        let mut later = now(new);
        offered.restore(&mut later);
        assert_eq!(later, now(old));
    }
}
