//! Tests decisions and their effects on ideas: each action, its undo, the refusals, and the state
//! after a crash.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runner_backends::Builtin;
use runner_engine::failpoint::fail_commits_after;
use runner_engine::outcome::Outcome;
use runner_jobs::Progress;
use runner_jobs::dream::proposal::Action;
use runner_jobs::dream::review::{
    Consent, DecisionInput, DecisionRequest, IfChanged, MARKER, ReviewError, Stale,
};

use super::fixture::{Fixture, OtherPerson};
use super::project;

/// The content, mode and modification time of every idea, archived idea and spec.
type FileSnapshot = BTreeMap<PathBuf, (Vec<u8>, u32, (i64, i64))>;

pub fn snapshot(place: &Fixture) -> FileSnapshot {
    fn below(folder: &Path, all: &mut FileSnapshot) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries.map(Result::unwrap) {
            let data = entry.metadata().unwrap();
            if data.is_dir() {
                below(&entry.path(), all);
            } else {
                let bytes = fs::read(entry.path()).unwrap();
                let date = (data.mtime(), data.mtime_nsec());
                all.insert(entry.path(), (bytes, data.mode() & 0o7777, date));
            }
        }
    }
    let mut all = FileSnapshot::new();
    below(&place.root.join("ideas"), &mut all);
    below(&place.root.join("specs"), &mut all);
    all
}

/// Creates a project with an idea of every class, and runs one pass. Some of the ideas have
/// different modes and modification times.
fn proposed() -> Fixture {
    let (mut place, _) = project();
    fs::write(place.root.join(".git/info/exclude"), "/ideas/\n/dreams/\n/specs/\n").unwrap();
    for (at, name) in ["retry-policy", "offline-maps", "sub/report"].iter().enumerate() {
        let file = fs::File::options()
            .write(true)
            .open(place.root.join(format!("ideas/{name}.md")))
            .unwrap();
        let mode = [0o600, 0o640, 0o664][at];
        file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
        if *name == "sub/report" {
            // The older of two equivalent ideas is kept, so this file keeps its newer date.
            continue;
        }
        let date = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000 + at as u64, 123_456_789);
        file.set_times(FileTimes::new().set_modified(date)).unwrap();
    }
    assert_eq!(place.pass().outcome, Outcome::Succeeded);
    place
}

const ALL: [(&str, Action); 5] = [
    ("ideas/retry-policy.md", Action::Archive),
    ("ideas/sub/report.md", Action::Merge),
    ("ideas/offline-maps.md", Action::Promote),
    ("ideas/scheduler-story.md", Action::MarkBlog),
    ("ideas/coffee.md", Action::Keep),
];

#[test]
fn every_action_is_undone_byte_for_byte() {
    let mut place = proposed();
    let before = snapshot(&place);
    let state_of = |place: &Fixture, path: &str| place.state(path)["status"].clone();
    for (path, action) in ALL {
        let text = place.read(path);
        let (_, mode, date) = before[&place.root.join(path)].clone();
        let done = place.decide(path, DecisionInput::Accept).unwrap();
        assert_eq!((done.decision.action.as_str(), done.already), (action.as_str(), false));
        let moved = |to: &str| {
            assert!(!place.root.join(path).exists());
            let (bytes, new_mode, new_date) = snapshot(&place)[&place.root.join(to)].clone();
            assert_eq!((new_mode, new_date), (mode, date), "the mode or date changed");
            bytes
        };
        let status = match action {
            Action::Archive => {
                assert_eq!(moved("ideas/done/retry-policy.md"), text);
                "archived"
            }
            Action::Merge => {
                assert_eq!(moved("ideas/done/sub/report.md"), text);
                let into = place.read("ideas/report-page.md");
                assert!(into.starts_with(&before[&place.root.join("ideas/report-page.md")].0));
                let text = String::from_utf8(text).unwrap();
                let missing = text.strip_prefix("# Report on one page\n\n").unwrap();
                assert!(into.ends_with(missing.as_bytes()), "the merged text is wrong");
                "merged"
            }
            Action::Promote => {
                let spec = moved("specs/offline-maps.md");
                assert!(spec.ends_with(&text) && spec.starts_with(b"---\npromoted_from: "));
                "promoted"
            }
            Action::MarkBlog => {
                let marked = place.read(path);
                assert_eq!(marked, [&text[..], MARKER.as_bytes(), b"\n"].concat());
                "active"
            }
            Action::Keep => {
                assert_eq!(snapshot(&place), before);
                "active"
            }
        };
        assert_eq!(state_of(&place, path), status);
        let again = place.decide(path, DecisionInput::Accept).unwrap();
        assert!(again.already, "a repeated decision took effect again");
        let other = place.decide(path, DecisionInput::Reject).unwrap_err();
        assert!(matches!(other, ReviewError::Decided(_)), "{other}");
        place.undo(path).unwrap();
        assert_eq!(snapshot(&place), before, "{path}");
        assert_eq!(state_of(&place, path), "active");
        assert!(matches!(place.undo(path), Err(ReviewError::NotFound(_))));
    }
    let mut lines = 0;
    for line in String::from_utf8(place.read("dreams/ledger.md")).unwrap().lines() {
        assert!(line.starts_with("- {\"proposal_id\":"), "{line}");
        lines += 1;
    }
    assert_eq!(lines, 10, "a decision or an undo did not append exactly one line");
    assert_eq!(place.all_proposals().undecided().count(), 6);
    assert_eq!(place.unsettled(), 0);
    assert!(fs::read_dir(place.root.join("dreams/.staging")).unwrap().next().is_none());
}

#[test]
fn only_merge_destinations_are_examined_again() {
    let mut place = proposed();
    place.decide("ideas/scheduler-story.md", DecisionInput::Accept).unwrap();
    let why = place.pass().outcome;
    assert!(matches!(why, Outcome::Skipped { .. }), "{why:?}");
    place.decide("ideas/sub/report.md", DecisionInput::Accept).unwrap();
    assert_eq!(place.pass().summary.facts["shown"], 1);
    let ids: Vec<String> =
        place.all_proposals().items.iter().map(|it| it.proposal.id.clone()).collect();
    let unique: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
}

#[test]
fn reject_and_skip_change_no_idea() {
    let mut place = proposed();
    let before = snapshot(&place);
    let state = place.read("dreams/state.json");
    place.decide("ideas/retry-policy.md", DecisionInput::Reject).unwrap();
    place.decide("ideas/offline-maps.md", DecisionInput::Skip).unwrap();
    assert_eq!((snapshot(&place), place.read("dreams/state.json")), (before, state));
    // A skipped proposal can still be accepted.
    let done = place.decide("ideas/offline-maps.md", DecisionInput::Accept).unwrap();
    assert!(!done.already);
    let decisions = String::from_utf8(place.read("dreams/ledger.md")).unwrap();
    for decision in ["rejected", "skipped", "accepted"] {
        assert!(decisions.contains(&format!("\"decision\":\"{decision}\"")), "{decisions}");
    }
    assert_eq!(place.all_proposals().undecided().count(), 4);
}

#[test]
fn amended_proposal_performs_the_chosen_action() {
    let mut place = proposed();
    let before = snapshot(&place);
    let merge = |into: Option<&str>| DecisionInput::Amend {
        action: Action::Merge,
        into: into.map(str::to_owned),
    };
    for into in
        [None, Some("ideas/coffee.md"), Some("README.md"), Some("ideas/done/x.md"), Some("../x")]
    {
        let refused = place.decide("ideas/coffee.md", merge(into)).unwrap_err();
        assert!(matches!(refused, ReviewError::Cannot(_)), "{into:?}: {refused}");
    }
    assert_eq!(snapshot(&place), before);
    place.decide("ideas/coffee.md", merge(Some("ideas/offline-maps.md"))).unwrap();
    assert!(place.read("ideas/offline-maps.md").ends_with(b"Coffee is better in the morning.\n"));
    let stale = place.decide("ideas/offline-maps.md", DecisionInput::Accept).unwrap_err();
    assert!(matches!(stale, ReviewError::Stale { stale: Stale::Changed, .. }), "{stale}");
    place.undo("ideas/coffee.md").unwrap();
    assert_eq!(snapshot(&place), before);
    let secret = place.id_of("ideas/coffee.md");
    let done = place.with_decider(|decider| {
        decider.decide(&DecisionRequest {
            id: &secret[..6],
            verdict: DecisionInput::Amend { action: Action::Archive, into: None },
            note: Some(" the word is hunter2\n"),
            consent: Consent { if_changed: IfChanged::Refuse, ..Consent::default() },
        })
    });
    assert_eq!(done.unwrap().decision.decision, "amended");
    let decisions = String::from_utf8(place.read("dreams/ledger.md")).unwrap();
    assert!(decisions.contains("the word is") && !decisions.contains("hunter2"), "{decisions}");
}

#[test]
fn decision_requires_the_inspected_content() {
    let mut place = proposed();
    place.write("ideas/retry-policy.md", "something else now\n");
    let before = place.everything();
    let stale = place.decide("ideas/retry-policy.md", DecisionInput::Accept).unwrap_err();
    assert!(matches!(stale, ReviewError::Stale { stale: Stale::Changed, .. }), "{stale}");
    assert_eq!(place.everything(), before);
    let id = place.id_of("ideas/retry-policy.md");
    let force = |place: &mut Fixture, if_changed| {
        place.with_decider(|decider| {
            decider.decide(&DecisionRequest {
                id: &id,
                verdict: DecisionInput::Accept,
                note: None,
                consent: Consent { if_changed, ..Consent::default() },
            })
        })
    };
    force(&mut place, IfChanged::Proceed).unwrap();
    assert_eq!(place.read("ideas/done/retry-policy.md"), b"something else now\n");
    // Later changes block an undo unless the user forces it. Even a forced undo keeps them.
    place.write("ideas/done/retry-policy.md", "and later\n");
    assert!(matches!(place.undo("ideas/retry-policy.md"), Err(ReviewError::Changed(_))));
    place.with_decider(|decider| decider.undo(&id, IfChanged::Proceed)).unwrap();
    assert_eq!(place.read("ideas/retry-policy.md"), b"something else now\n");
    assert_eq!(place.read("ideas/done/retry-policy.md"), b"and later\n");
    fs::remove_file(place.root.join("ideas/retry-policy.md")).unwrap();
    let gone = force(&mut place, IfChanged::Proceed).unwrap_err();
    assert!(matches!(gone, ReviewError::Cannot(_)), "{gone}");
}

#[test]
fn forced_undo_backs_up_later_edits() {
    let mut place = proposed();
    let before = place.read("ideas/report-page.md");
    place.decide("ideas/sub/report.md", DecisionInput::Accept).unwrap();
    place.write("ideas/report-page.md", "rewritten manually\n");
    let id = place.id_of("ideas/sub/report.md");
    place.with_decider(|decider| decider.undo(&id, IfChanged::Proceed)).unwrap();
    assert_eq!(place.read("ideas/report-page.md"), before);
    let kept = place.everything();
    let backup = place.root.join("dreams/.undo");
    assert!(
        kept.iter()
            .any(|(path, bytes)| path.starts_with(&backup) && bytes == b"rewritten manually\n")
    );
}

#[test]
fn archive_overwrites_no_existing_entry() {
    let mut place = proposed();
    place.write("ideas/done/retry-policy.md", "an older one\n");
    symlink("/nowhere", place.root.join("ideas/done/retry-policy-2.md")).unwrap();
    fs::create_dir(place.root.join("ideas/done/retry-policy-3.md")).unwrap();
    let text = place.read("ideas/retry-policy.md");
    place.decide("ideas/retry-policy.md", DecisionInput::Accept).unwrap();
    assert_eq!(place.read("ideas/done/retry-policy.md"), b"an older one\n");
    assert_eq!(place.read("ideas/done/retry-policy-4.md"), text);
}

/// Checks that the guard refuses to accept the proposal about `path`, with a message that contains
/// `text`, and that nothing changes.
#[track_caller]
fn refused(place: &mut Fixture, path: &str, text: &str) {
    let before = (place.everything(), place.git(&["status", "--short"]));
    match place.decide(path, DecisionInput::Accept) {
        Err(ReviewError::Guard(why)) => assert!(why.contains(text), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!((place.everything(), place.git(&["status", "--short"])), before);
}

#[test]
fn canonical_and_linked_ideas_are_untouched() {
    let mut place = proposed();
    place.spec.canonical = vec!["ideas/retry-policy.md".into()];
    refused(&mut place, "ideas/retry-policy.md", "canonical");
    place.spec.canonical = vec!["dreams/ledger.md".into()];
    refused(&mut place, "ideas/coffee.md", "canonical");
    place.spec.canonical = vec!["ideas/done".into()];
    refused(&mut place, "ideas/retry-policy.md", "canonical");
    place.spec.canonical.clear();
    // Runner's own files must never be committed.
    fs::create_dir_all(place.root.join("dreams")).unwrap();
    fs::write(place.root.join("dreams/ledger.md"), "").unwrap();
    place.git(&["add", "--force", "dreams/ledger.md"]);
    refused(&mut place, "ideas/retry-policy.md", "tracked");
    place.git(&["rm", "--cached", "-q", "dreams/ledger.md"]);
    fs::remove_file(place.root.join("dreams/ledger.md")).unwrap();

    // The folder of archived ideas is a link to another folder.
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), place.root.join("ideas/done")).unwrap();
    refused(&mut place, "ideas/retry-policy.md", "link");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    fs::remove_file(place.root.join("ideas/done")).unwrap();

    // The idea is a link to a file with the same content.
    let twin = outside.path().join("twin.md");
    fs::rename(place.root.join("ideas/retry-policy.md"), &twin).unwrap();
    symlink(&twin, place.root.join("ideas/retry-policy.md")).unwrap();
    let gone = place.decide("ideas/retry-policy.md", DecisionInput::Accept).unwrap_err();
    assert!(matches!(gone, ReviewError::Stale { stale: Stale::Gone, .. }), "{gone}");
    let id = place.id_of("ideas/retry-policy.md");
    let ask = DecisionRequest {
        id: &id,
        verdict: DecisionInput::Accept,
        note: None,
        consent: Consent { if_changed: IfChanged::Proceed, ..Consent::default() },
    };
    let forced = place.with_decider(|decider| decider.decide(&ask)).unwrap_err();
    assert!(matches!(forced, ReviewError::Guard(_)), "{forced}");
    assert!(twin.exists());

    // An idea with another hard link is refused, because that link would keep the content.
    fs::hard_link(place.root.join("ideas/coffee.md"), outside.path().join("hard.md"))
        .map(|()| {
            let id = place.id_of("ideas/coffee.md");
            let verdict = DecisionInput::Amend { action: Action::Archive, into: None };
            let ask = DecisionRequest {
                id: &id,
                verdict,
                note: None,
                consent: Consent { if_changed: IfChanged::Refuse, ..Consent::default() },
            };
            let linked = place.with_decider(|decider| decider.decide(&ask)).unwrap_err();
            assert!(matches!(linked, ReviewError::Guard(_)), "{linked}");
        })
        .unwrap();
    assert_eq!(place.unsettled(), 0);
}

#[test]
fn ignored_ideas_move_only_to_ignored_folders() {
    let mut place = proposed();
    let exclude = place.root.join(".git/info/exclude");
    fs::write(&exclude, "/ideas/\n/dreams/\n").unwrap();
    let exposed = place.decide("ideas/offline-maps.md", DecisionInput::Accept).unwrap_err();
    assert!(matches!(exposed, ReviewError::Exposed { .. }), "{exposed}");
    assert!(exposed.to_string().contains("specs/offline-maps.md"), "{exposed}");
    fs::write(&exclude, "/ideas/\n").unwrap();
    refused(&mut place, "ideas/coffee.md", "not ignored");
    // If the ideas are not ignored, the specs need not be ignored either.
    fs::write(&exclude, "/dreams/\n").unwrap();
    place.decide("ideas/offline-maps.md", DecisionInput::Accept).unwrap();
    assert!(place.root.join("specs/offline-maps.md").exists());
}

/// A user who decides during a pass, after the pass has read its state.
struct Meanwhile<F>(OtherPerson, Option<F>);

impl<F: FnOnce(&OtherPerson)> Progress for Meanwhile<F> {
    fn step(&mut self, _: &str, _: u64, _: u64) {
        if let Some(act) = self.1.take() {
            act(&self.0);
        }
    }
}

#[test]
fn concurrent_pass_and_decision_lose_nothing() {
    let mut place = proposed();
    place.write("ideas/new.md", "# A new thought\n\n- Draw it\n- Show it\n");
    let id = place.id_of("ideas/retry-policy.md");
    let act = move |other: &OtherPerson| {
        let ask = DecisionRequest {
            id: &id,
            verdict: DecisionInput::Accept,
            note: None,
            consent: Consent { if_changed: IfChanged::Refuse, ..Consent::default() },
        };
        other.with_decider(|decider| decider.decide(&ask)).unwrap();
    };
    let mut meanwhile = Meanwhile(place.other(), Some(act));
    let settled = place.pass_with(Arc::new(Builtin::default()), &mut meanwhile);
    assert!(meanwhile.1.is_none(), "the concurrent decision was not made");
    assert_eq!(settled.outcome, Outcome::Succeeded, "{settled:?}");
    assert_eq!(place.state("ideas/retry-policy.md")["status"], "archived");
    assert_eq!(place.state("ideas/retry-policy.md")["history"][0]["action"], "archive");
    assert_ne!(place.state("ideas/new.md")["hash"], "");
    assert!(place.root.join("ideas/done/retry-policy.md").exists());
    assert!(place.all_proposals().items.iter().any(|it| it.proposal.targets[0] == "ideas/new.md"));
    assert_eq!(place.unsettled(), 0);
}

#[test]
fn concurrent_decisions_record_only_one() {
    let mut place = proposed();
    let id = place.id_of("ideas/retry-policy.md");
    let others = [place.other(), place.other()];
    let barrier = std::sync::Barrier::new(2);
    // This call sets the clock that both users read.
    place.with_decider(|_| ());
    let verdicts = [DecisionInput::Accept, DecisionInput::Reject];
    let done: Vec<Result<_, _>> = std::thread::scope(|scope| {
        let handles = others.iter().zip(verdicts).map(|(other, verdict)| {
            let (id, barrier) = (&id, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let ask = DecisionRequest {
                    id,
                    verdict,
                    note: None,
                    consent: Consent { if_changed: IfChanged::Refuse, ..Consent::default() },
                };
                other.with_decider(|decider| decider.decide(&ask))
            })
        });
        let handles: Vec<_> = handles.collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let won = done.iter().filter(|it| it.is_ok()).count();
    assert_eq!(won, 1, "{done:?}");
    let reported = done.into_iter().find_map(Result::err).unwrap();
    assert!(matches!(reported, ReviewError::Decided(_)), "{reported}");
    let lines = String::from_utf8(place.read("dreams/ledger.md")).unwrap().lines().count();
    assert_eq!(lines, 1);
}

/// Returns the paths and contents to compare. A spec contains the time of its promotion, so it is
/// represented by its length.
fn contents(place: &Fixture, snapshot: &FileSnapshot) -> Vec<(PathBuf, Result<Vec<u8>, usize>)> {
    let specs = place.root.join("specs");
    let one = |(path, (bytes, ..)): (&PathBuf, &(Vec<u8>, _, _))| {
        let is_spec = path.starts_with(&specs);
        let content = if is_spec { Err(bytes.len()) } else { Ok(bytes.clone()) };
        (path.clone(), content)
    };
    snapshot.iter().map(one).collect()
}

#[test]
fn crash_at_any_commit_leaves_all_or_nothing() {
    let mut place = proposed();
    let before = snapshot(&place);
    let (mut cases, mut forward) = (0, 0);
    for (path, _) in ALL {
        let id = place.id_of(path);
        for undo in [false, true] {
            for commits in 0.. {
                place.decide(path, DecisionInput::Accept).unwrap();
                let after = snapshot(&place);
                if !undo {
                    place.undo(path).unwrap();
                }
                fail_commits_after(Some(commits));
                let died = match undo {
                    true => place.undo(path).is_err(),
                    false => place.decide(path, DecisionInput::Accept).is_err(),
                };
                fail_commits_after(None);
                // The next undo finishes the interrupted decision or undo.
                let nobody =
                    place.with_decider(|decider| decider.undo("nobody", IfChanged::Refuse));
                assert!(matches!(nobody, Err(ReviewError::NotFound(_))), "{nobody:?}");
                let decided = place.all_proposals().find(&id).unwrap().decision.is_some();
                let wanted = if decided { &after } else { &before };
                assert_eq!(
                    contents(&place, &snapshot(&place)),
                    contents(&place, wanted),
                    "{path}, undo {undo}, {commits} commits, decided {decided}"
                );
                cases += 1;
                forward += usize::from(died && decided != undo);
                if decided {
                    place.undo(path).unwrap();
                }
                assert_eq!(snapshot(&place), before);
                if !died {
                    break;
                }
            }
        }
    }
    println!("crash tests: {cases} cases, {forward} rolled forward");
    assert!(forward >= 10, "{forward}");
}

#[test]
fn forced_blog_mark_leaves_unread_text_selected() {
    let mut place = proposed();
    let path = "ideas/coffee.md";
    place.write(path, "Coffee is better in the evening.\n");
    let id = place.id_of(path);
    let consent = Consent { if_changed: IfChanged::Proceed, ..Consent::default() };
    let verdict = DecisionInput::Amend { action: Action::MarkBlog, into: None };
    place
        .with_decider(|it| it.decide(&DecisionRequest { id: &id, verdict, note: None, consent }))
        .unwrap();
    assert_eq!(place.pass().summary.facts["shown"], 1);
}

#[test]
fn merge_does_not_append_existing_text() {
    let mut place = proposed();
    let (from, into) = ("ideas/report-page.md", "ideas/sub/report.md");
    let before = fs::read(place.root.join(into)).unwrap();
    let merge = || DecisionInput::Amend { action: Action::Merge, into: Some(into.to_owned()) };
    place.decide(from, merge()).unwrap();
    assert_eq!(
        fs::read(place.root.join(into)).unwrap(),
        before,
        "the merge appended text that the destination already has"
    );
    assert!(place.root.join("ideas/done/report-page.md").exists());
    place.undo(from).unwrap();
    assert!(place.root.join(from).exists());
}
