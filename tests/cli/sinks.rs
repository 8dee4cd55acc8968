//! Secrets of every kind, which a program writes to its output, to an artifact and to a file that a
//! prompt reads, appear in no output, file, database or recording of runner, and no model receives them.

use std::fs;
use std::path::Path;

use runner_text::redact::samples::{self, Sample};

use crate::fixture::Fixture;

/// The length of a part from which the rest of a secret could be guessed.
const PART: usize = 16;

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns the text that the program writes: each kind plain, in JSON and percent-encoded.
fn written(samples: &[Sample]) -> String {
    let mut text = String::new();
    for sample in samples {
        let plain = sample.text();
        text.push_str(&format!(
            "{plain}\n{}\n{}\n",
            serde_json::json!({ "text": plain }),
            percent(&plain)
        ));
    }
    text
}

/// Returns each part of a secret that must not appear, with the secret's kind.
fn parts(samples: &[Sample]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for sample in samples {
        for line in sample.secret.lines().filter(|line| line.len() >= PART) {
            // The samples share long parts of their alphabet, so a part in the middle of a secret
            // would be found in another one.
            for at in [0, line.len() - PART] {
                let part = &line[at..at + PART];
                all.push((part.to_owned(), sample.kind.clone()));
                all.push((percent(part), format!("{}, encoded", sample.kind)));
            }
        }
    }
    all
}

fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, found),
            Ok(kind) if kind.is_file() => {
                found.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
            }
            _ => {}
        }
    }
}

#[test]
fn no_sink_contains_a_secret() {
    let samples = samples::all();
    assert!(samples.len() >= 200, "{}", samples.len());
    let parts = parts(&samples);
    let toml = "[jobs.spill]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
        args = [\"-c\", \"cat spilled; cat spilled >&2; exit 3\"]\nwrites = [\"out\"]\n\
        [jobs.last]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\n\
        args = [\"-c\", \"cat $(cat which) >&2; exit 3\"]\nwrites = [\"out\"]\n\
        [jobs.tell]\nkind = \"prompt\"\ntrigger = \"manual\"\nprompt = \"Say what it is.\"\n\
        sources = [\"spilled\"]\nto = \"out/reply.md\"\nbackend = \"echo\"\n\
        [backends.echo]\ntype = \"command\"\nprogram = \"sh\"\n\
        args = [\"-c\", \"tee request.json | perl -MJSON::PP -0777 -ne 'print JSON::PP->new->allow_nonref->encode($_)'\"]\n";
    let fixture = Fixture::with(toml);
    fixture.write("spilled", written(&samples));
    let mut shown = Vec::new();
    fixture.run(&["run", "spill"]).ends(1).expect_text("exit 3");
    fixture.run(&["run", "tell"]).ends(0).expect_text("echo wrote");
    let mut show = |args: &[&str]| {
        let said = fixture.run(args);
        shown.push((format!("stdout of {args:?}"), said.out.into_bytes()));
        shown.push((format!("stderr of {args:?}"), said.err.into_bytes()));
    };
    for args in [
        &["run", "spill"][..],
        &["run", "spill", "--follow"],
        &["run", "tell"],
        &["runs", "show", "spill"],
        &["logs", "spill"],
        &["logs", "tell"],
        &["runs", "--json"],
        &["status"],
        &["status", "--json"],
        &["report"],
        &["replay", "tell"],
    ] {
        show(args);
    }
    // The message of a failed run contains the last characters of the output, so each secret is cut at
    // another place.
    for (number, sample) in samples.iter().enumerate().step_by(10) {
        let cut = sample.text().len().min(500);
        let before = "x".repeat(400_usize.saturating_sub(cut / 2));
        fixture.write("one", format!("{}\n{before}", sample.text()));
        fixture.write("which", "one");
        let said = fixture.run(&["run", "last"]);
        shown.push((format!("stderr of the last words, sample {number}"), said.err.into_bytes()));
        fixture.run(&["jobs", "reset", "last"]);
    }
    let runs = fixture.run(&["runs", "--json"]).ends(0).json();
    for run in runs.as_array().unwrap() {
        let id = run["id"].as_str().unwrap();
        for args in
            [&["runs", "show", id][..], &["runs", "show", id, "--json"], &["runs", "logs", id]]
        {
            let said = fixture.run(args);
            shown.push((format!("output of {args:?}"), (said.out + &said.err).into_bytes()));
        }
    }
    files(&fixture.state(), &mut shown);
    files(&fixture.path(".runner"), &mut shown);
    files(&fixture.path("out"), &mut shown);
    for file in ["reply.md", "request.json"] {
        assert!(shown.iter().any(|(name, _)| name.ends_with(file)), "no {file}");
    }
    assert!(shown.iter().any(|(_, text)| String::from_utf8_lossy(text).contains("[redacted:")));
    let mut leaks = Vec::new();
    for (name, bytes) in &shown {
        let text = String::from_utf8_lossy(bytes);
        for (part, kind) in &parts {
            if text.contains(part.as_str()) {
                leaks.push(format!("{kind} in {name}"));
            }
        }
    }
    leaks.dedup();
    println!("{} kinds in 3 encodings, {} outputs and files", samples.len(), shown.len());
    assert!(leaks.is_empty(), "{} leaks: {:#?}", leaks.len(), &leaks[..leaks.len().min(20)]);
}
