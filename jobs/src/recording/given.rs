//! The inputs that the program gives a job besides its settings: the paths of files, and the
//! position in a cycle.

use serde::{Deserialize, Serialize};

use crate::KindSpec;
use crate::lifecycle::Files;
use crate::lifecycle::cycle::AgentPosition;
use crate::lifecycle::spec::StateKind;

/// The inputs of a job that are not among its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenInputs {
    /// Where the project keeps the lifecycle's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// Where an agent stood in its cycle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<AgentPosition>,
    /// The kind and the subject of an agent's work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<(StateKind, String)>,
}

impl GivenInputs {
    /// Returns the inputs of a job.
    pub fn of(kind: &KindSpec) -> Self {
        let (files, now, work) = match kind {
            KindSpec::Rem(own) => (Some(&own.files), None, None),
            KindSpec::Daydream(own) => (Some(&own.files), None, None),
            KindSpec::Cycle(own) => (Some(&own.files), own.now.clone(), None),
            KindSpec::Work(own) => (Some(&own.files), None, Some((own.kind, own.about.clone()))),
            KindSpec::Dream(_)
            | KindSpec::Command(_)
            | KindSpec::Prompt(_)
            | KindSpec::Report
            | KindSpec::Overnight(_)
            | KindSpec::Curator(_) => (None, None, None),
        };
        Self {
            files: files.cloned(),
            now,
            work,
        }
    }

    /// Gives it to the job, as its settings were read.
    ///
    /// # Errors
    /// It is none that a job can be given.
    pub fn give(self, kind: &mut KindSpec) -> Result<(), &'static str> {
        if self
            .now
            .as_ref()
            .is_some_and(|now| now.spec.states.is_empty())
        {
            return Err("its cycle has no state");
        }
        let files = self.files.unwrap_or_default();
        match kind {
            KindSpec::Rem(own) => own.files = files,
            KindSpec::Daydream(own) => own.files = files,
            KindSpec::Cycle(own) => (own.files, own.now) = (files, self.now),
            KindSpec::Work(own) => {
                own.files = files;
                (own.kind, own.about) = self.work.unwrap_or_default();
            }
            KindSpec::Dream(_)
            | KindSpec::Command(_)
            | KindSpec::Prompt(_)
            | KindSpec::Report
            | KindSpec::Overnight(_)
            | KindSpec::Curator(_) => {}
        }
        Ok(())
    }
}
