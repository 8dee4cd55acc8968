//! The state shared by all requests to a server, and the function that calls a command.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use runner_engine::ids::ProjectId;
use runner_engine::store::{Event, Store};
use runner_text::shell_line;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use super::access::Client;
use super::codes::Codes;
use super::render::Renderer;
use super::secrets::Secrets;
use crate::env::{self, Env};
use crate::project::FILE;
use crate::ui::{CalledCommand, Captured, Failure};

/// Maximum number of views that are read at the same time. Each has its own connection to the
/// database.
const VIEWS: usize = 4;
/// Maximum number of modifying commands that run at the same time.
const ACTS: usize = 2;
/// Maximum number of messages, and of answers, that are kept for a later request.
const KEPT: usize = 256;

/// A function that runs a command of `runner` inside this process, in a folder, and captures the
/// command's output.
pub type CommandCaller = fn(&Env, Option<&Path>, &[String]) -> CalledCommand;

/// The shared state of a server.
pub struct Web {
    pub home: Env,
    /// Runs commands.
    caller: CommandCaller,
    /// The accepted values of the `Host` header.
    pub hosts: Vec<String>,
    /// The secrets. New ones end all logins and event streams.
    pub secrets: watch::Sender<Secrets>,
    pub codes: Codes,
    pub renderer: Renderer,
    /// The number of the database's last change.
    pub changes: watch::Receiver<i64>,
    pub streams: Arc<Semaphore>,
    /// The results of actions, by client, kept until the client's next page shows them.
    pub messages: Kept,
    /// The responses to API requests, by idempotency key.
    pub answers: Kept,
    /// The requests in progress that have an idempotency key.
    pub pending: Mutex<BTreeSet<String>>,
    views: Arc<Semaphore>,
    acts: Arc<Semaphore>,
}

/// The purpose of a command. Slow views do not keep an action waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    View,
    Act,
}

/// The result of a command.
#[derive(Debug)]
pub struct Answer {
    /// The output as JSON; null if the command printed nothing.
    pub data: Value,
    /// The output as it was printed.
    pub text: String,
    /// The command's notices.
    pub notices: String,
}

impl Web {
    pub fn new(
        (home, caller): (Env, CommandCaller),
        hosts: Vec<String>,
        changes: watch::Receiver<i64>,
        streams: usize,
    ) -> Result<Self, Failure> {
        Ok(Self {
            secrets: watch::Sender::new(Secrets::load(&home)?),
            codes: Codes::new(&home)?,
            home,
            caller,
            hosts,
            renderer: Renderer::new(),
            changes,
            streams: Arc::new(Semaphore::new(streams)),
            messages: Kept::default(),
            answers: Kept::default(),
            pending: Mutex::default(),
            views: Arc::new(Semaphore::new(VIEWS)),
            acts: Arc::new(Semaphore::new(ACTS)),
        })
    }

    pub fn secrets(&self) -> Secrets {
        self.secrets.borrow().clone()
    }

    /// Runs a command for a project, or for all projects, and returns its result.
    ///
    /// # Errors
    /// Returns an error if the project is unknown or has no settings file, or if the command fails.
    pub async fn call(
        self: &Arc<Self>,
        purpose: Purpose,
        project: Option<String>,
        words: Vec<String>,
    ) -> Result<Answer, Failure> {
        let web = Arc::clone(self);
        self.blocking(purpose, move || {
            let folder = project.map(|id| web.folder(&id)).transpose()?;
            // If the folder had no settings file, the command would use an enclosing project.
            if let Some(folder) = folder.as_deref().filter(|folder| !folder.join(FILE).is_file()) {
                let what = format!("{} has no {FILE}", folder.display());
                return Err(Failure::data(what).hint("runner projects"));
            }
            let CalledCommand { result, captured: Captured { out, notices } } =
                (web.caller)(&web.home, folder.as_deref(), &words);
            result?;
            let data = serde_json::from_str(&out).unwrap_or_default();
            Ok(Answer { data, text: out, notices })
        })
        .await
    }

    /// Runs a function that waits for files or the database, on a separate thread.
    ///
    /// # Errors
    /// Returns the function's failure.
    pub async fn blocking<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let places = match purpose {
            Purpose::View => &self.views,
            Purpose::Act => &self.acts,
        };
        let place = Arc::clone(places).acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        done.await.unwrap_or_else(|_| {
            Err(Failure::internal("the command failed because of a bug in runner"))
        })
    }

    /// Returns the folder of a registered project.
    ///
    /// # Errors
    /// Returns an error if there is no such project, or if the database cannot be read.
    pub fn folder(&self, id: &str) -> Result<PathBuf, Failure> {
        let none = || Failure::data(format!("there is no project {id:?}")).hint("runner projects");
        let id: ProjectId = id.parse().map_err(|_| none())?;
        let store = self.store()?;
        Ok(store.project(&id)?.ok_or_else(none)?.path)
    }

    /// Opens the database for reading.
    ///
    /// # Errors
    /// Returns an error if there is no database, or if it cannot be used.
    pub fn store(&self) -> Result<Store, Failure> {
        let none = || Failure::data("there is no database yet").hint("runner init");
        self.home.store_to_read()?.ok_or_else(none)
    }

    /// Records a request for an action in the audit trail.
    ///
    /// # Errors
    /// Returns an error if the request cannot be recorded, in which case the action must not be
    /// carried out.
    pub fn audit(
        &self,
        client: &Client,
        words: &[String],
        project: Option<&str>,
    ) -> Result<(), Failure> {
        let mut store = self.home.store()?;
        let run = words.iter().find_map(|word| word.parse().ok());
        let words: Vec<&str> =
            words.iter().map(String::as_str).filter(|it| *it != "--json").collect();
        store.event(&Event {
            at: self.home.wall()?,
            project: project.and_then(|id| id.parse().ok()),
            run,
            kind: "web".to_owned(),
            detail: format!(
                "runner {}: asked by {} from {}",
                shell_line(words),
                env::person(),
                client.from
            ),
        })?;
        Ok(())
    }
}

/// The most recent strings, each with a key.
#[derive(Default)]
pub struct Kept(Mutex<VecDeque<(String, String)>>);

impl Kept {
    pub fn put(&self, key: String, text: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(known, _)| *known != key);
        all.truncate(KEPT - 1);
        all.push_front((key, text));
    }

    pub fn get(&self, key: &str) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(known, _)| known == key).map(|(_, text)| text.clone())
    }

    pub fn take(&self, key: &str) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|(known, _)| known == key)?;
        all.remove(at).map(|(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_texts_are_limited() {
        let kept = Kept::default();
        for number in 0..KEPT + 5 {
            kept.put(number.to_string(), number.to_string());
        }
        kept.put("9".to_owned(), "again".to_owned());
        assert_eq!(kept.get("0"), None);
        assert_eq!(kept.take("9").as_deref(), Some("again"));
        assert_eq!(kept.take("9"), None);
        assert!(kept.0.lock().unwrap().len() < KEPT + 1);
    }
}
