//! Implements [`Kind`] for the dream pass.

use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use runner_engine::git::Git;
use runner_engine::publish::RelPath;

use super::spec::DreamSpec;
use crate::dry_run::{DryRunPlan, priced};
use crate::kind::{Asks, BadSetting, Kind, Targets};
use crate::reserved::{NEVER, reserved};
use crate::{Context, Finished, JobError};

impl Kind for DreamSpec {
    fn name(&self) -> &'static str {
        "dream"
    }

    fn run(&self, ctx: &mut Context<'_>, _job: &str) -> Result<Finished, JobError> {
        super::run(ctx, self)
    }

    fn dry_run(&self, ctx: &mut Context<'_>) -> Result<DryRunPlan, JobError> {
        let (requests, notes) = super::questions(ctx, self)?;
        let priced = |(request, ideas)| priced(&mut ctx.spender, request, ideas);
        Ok(DryRunPlan {
            requests: requests.into_iter().map(priced).collect::<Result<_, _>>()?,
            notes,
            checks: vec![
                "every element of the answer: its targets, status and action are among those offered"
                    .to_owned(),
                "evidence: an idea is archived only with high confidence and for an offered commit that \
                 supports it; otherwise it is kept"
                    .to_owned(),
                "no idea, and no destination, has changed since it was read".to_owned(),
                "no proposal has been decided on before".to_owned(),
                format!(
                    "git ignores what is written in {}/ and tracks none of it",
                    self.dreams
                ),
            ],
            ..DryRunPlan::default()
        })
    }

    fn publishes(&self) -> Targets {
        Targets::Folders(vec![self.dreams.clone()])
    }

    fn check(&self) -> Result<(), BadSetting> {
        // `dreams` is the job's own folder.
        let names = NEVER.into_iter().filter(|name| *name != "dreams");
        let names: Vec<&str> = names.collect();
        let path = |key, text: &str| match reserved(text, &names) {
            Some(never) => Err((key, format!("{text:?}: dream jobs cannot use {never}"))),
            None => RelPath::new(text).map_err(|error| (key, error.to_string())),
        };
        let ideas = path("ideas", &self.ideas)?;
        let dreams = path("dreams", &self.dreams)?;
        path("done", &self.done)?;
        path("specs", &self.specs)?;
        for file in &self.canonical {
            RelPath::new(file).map_err(|error| ("canonical", error.to_string()))?;
        }
        if ideas.is_within(&dreams) {
            let why = format!("the ideas folder ({ideas}) is inside the dreams folder ({dreams})");
            return Err(("ideas", why));
        }
        Ok(())
    }

    fn asks(&self) -> Asks {
        match self.submission {
            Some(_) => Asks::Never,
            None => Asks::Always,
        }
    }

    fn default_timeout(&self) -> SignedDuration {
        SignedDuration::from_mins(30)
    }

    fn default_ideas(&self) -> Option<u64> {
        Some(self.max_ideas as u64)
    }

    fn uncommitted(&self, git: &Git) -> Result<Vec<String>, JobError> {
        super::dirty(git, self)
    }

    fn protects(&self) -> Vec<String> {
        vec![self.dreams.clone()]
    }

    fn paths(&self) -> Vec<(&'static str, String)> {
        let folders = [
            ("ideas", &self.ideas),
            ("dreams", &self.dreams),
            ("done", &self.done),
            ("specs", &self.specs),
        ];
        let canonical = self.canonical.iter().map(|path| ("canonical", path));
        let all = folders.into_iter().chain(canonical);
        all.map(|(key, path)| (key, path.clone())).collect()
    }

    fn staging(&self) -> String {
        format!("{}/.staging", self.dreams)
    }

    fn lock_file(&self) -> Option<PathBuf> {
        Some(Path::new(&self.dreams).join(".lock"))
    }

    fn failure_marker(&self) -> Option<PathBuf> {
        Some(Path::new(&self.dreams).join(".failed"))
    }
}
