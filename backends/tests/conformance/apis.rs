//! Model APIs in the suite: a server of our own that speaks their dialects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use runner_backends::{Backend, BackendSpec, build};
use serde_json::json;

use super::http::behaviours::Behaviour as B;
use super::http::tongue::{COST, Tongue, Why};
use super::http::{Server, Talk};
use super::{CANARY, Case, Situation as S, around};

pub fn anthropic(situation: S, place: &Path) -> Option<Case> {
    api("anthropic", situation, place)
}

pub fn openai(situation: S, place: &Path) -> Option<Case> {
    api("openai", situation, place)
}

pub fn ollama(situation: S, place: &Path) -> Option<Case> {
    api("ollama", situation, place)
}

/// A backend that asks `base` with the canary as its key.
pub fn backend(kind: &str, base: &str, change: impl FnOnce(&mut BackendSpec)) -> Arc<dyn Backend> {
    let mut spec = BackendSpec {
        name: "under-test".into(),
        kind: kind.into(),
        model: Some("m".into()),
        base_url: Some(base.into()),
        key: Some("SECRET".into()),
        ..BackendSpec::default()
    };
    change(&mut spec);
    let env = BTreeMap::from([("SECRET".to_owned(), CANARY.to_owned())]);
    build(&spec, &around(&env)).unwrap()
}

/// Gives the list of models, if that is what is asked for.
pub fn lists(talk: &mut Talk, line: &str, tongue: Tongue) -> bool {
    if !line.starts_with("GET") {
        return false;
    }
    let json = [("content-type", "application/json")];
    talk.reply(200, &json, tongue.models(&["m"]));
    true
}

fn api(kind: &str, situation: S, place: &Path) -> Option<Case> {
    let behaviour = match situation {
        S::Good | S::UsageStated | S::CancelledBefore => B::Good,
        S::UsageUnknown => B::UsageMissing,
        S::SilentStart | S::CancelledMidway => B::NeverAnswers,
        S::Stall => B::StallsMidway,
        S::Drip => B::DripsSignsOfLife,
        S::Prose | S::LeaksMalformed => B::Prose,
        S::NotText => B::NoUtf8,
        S::Empty => B::EmptyAnswer,
        S::OverLong => B::EndlessText,
        S::NoAuth => B::NoKey,
        S::RateLimited => B::LimitBare,
        S::Refused => B::BadRequest,
        S::Unreachable => B::Overloaded,
        _ => return None,
    };
    let tongue = match kind {
        "anthropic" => Tongue::Messages,
        "openai" => Tongue::Chat,
        _ => Tongue::Ollama,
    };
    let fifo = place.join("fifo");
    let begun = (situation == S::CancelledMidway).then(|| {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        fifo.clone()
    });
    let told = begun.clone();
    let server = Server::start(move |talk, seen| {
        if lists(talk, &seen.line, tongue) {
            return;
        }
        if let Some(fifo) = &told {
            fs::write(fifo, "begun").unwrap();
        }
        if situation == S::LeaksMalformed {
            let text = format!("your key is {CANARY}");
            let events = tongue.events(&[&text], Why::Done, COST).concat();
            return talk.reply(200, &[("content-type", tongue.content_type())], events);
        }
        behaviour.answer(tongue, talk, seen, "http://127.0.0.1:1");
    });
    let backend = backend(kind, &server.url(), |_| {});
    Some(Case {
        backend,
        answer: |_| json!(["ä€", "😀 x", "z\n"]),
        calls: Box::new(move || server.calls()),
        begun,
    })
}
