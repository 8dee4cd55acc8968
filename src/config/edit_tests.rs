//! Tests that changing a setting in a file changes nothing else.

use std::fs;

use toml::Value;

use super::*;

/// Sets a key in a project's file and returns the new contents.
fn set(text: &str, key: &str, value: &str) -> Result<String, Failure> {
    change(text, &[SettingChange::Set(key.to_owned(), value.to_owned())])
}

/// Changes a project's file and returns the new contents.
fn change(text: &str, changes: &[SettingChange]) -> Result<String, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runner.toml");
    fs::write(&file, text).unwrap();
    let wanted = Edit { changes, file: &file, user: false };
    let (old, new, _) = edit(&folder.path().join("none"), &wanted, None)?;
    assert_eq!(old, text.trim_start_matches('\u{feff}'));
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "the file was written");
    Ok(new)
}

const COMMENTED: &str = "\
# A file with a history.\n\
\n\
   [ night ]   # odd spaces\n\
length   =\"8h\"# tight\n\
\tat = '02:30'    # manually\n\
zone = \"\"\"system\"\"\"\n\
\n\
# budgets\n\
[night.budget] # of the night\n\
calls = 50 # fifty\n\
# money = 3\n\
\n\
[jobs.dream]\n\
# a comment above\n\
max_ideas = 7 # seven\n\
budget = { calls = 4, money = 1.0 } # inline\n\
canonical = [\n\
  \"README.md\", # the first\n\
  # none more\n\
]\n\
\n\
[jobs.a]\n\
kind = \"command\"\n\
program = \"x\"\n\
args = [\"-c\", \"\"\"\n\
two\n\
lines\"\"\"]\n\
# the end, without a line's end";

#[test]
fn set_changes_only_the_value() {
    let cases = [
        ("night.at", "23:15", "'02:30'", "\"23:15\""),
        ("night.length", "6h", "\"8h\"#", "\"6h\"#"),
        ("night.zone", "Asia/Tokyo", "\"\"\"system\"\"\"", "\"Asia/Tokyo\""),
        ("night.budget.calls", "3", "calls = 50", "calls = 3"),
        ("jobs.dream.max_ideas", "9", "= 7", "= 9"),
        ("jobs.dream.budget.money", "2.5", "money = 1.0", "money = 2.5"),
        ("jobs.a.program", "y z", "\"x\"", "\"y z\""),
        ("jobs.a.kind", "command", "", ""),
        ("jobs.a.timeout", "5m", "lines\"\"\"]\n", "lines\"\"\"]\ntimeout = \"5m\"\n"),
        ("jobs.dream.enabled", "false", "none more\n]\n", "none more\n]\nenabled = false\n"),
        ("night.budget.ideas", "4", "# fifty\n", "# fifty\nideas = 4\n"),
    ];
    let mut tried = 0;
    let ended = format!("{COMMENTED}\n");
    for text in [COMMENTED, &ended, "", "\n\n# only this\n", "[night]\nat=\"01:00\""] {
        for (key, value, old, new) in cases {
            // `old` and `new` describe the commented file. In the other files, the key gets a
            // separate line.
            let known = text.contains("history");
            let want = text.replacen(old, new, 1);
            for (line_end, mark) in [("\n", ""), ("\r\n", ""), ("\n", "\u{feff}")] {
                let file = format!("{mark}{}", text.replace('\n', line_end));
                let got = match set(&file, key, value) {
                    Ok(got) => got,
                    // A job that does not exist has no kind.
                    Err(_) if !known && key.starts_with("jobs.a") => continue,
                    Err(error) => panic!("{key}: {error}"),
                };
                if known {
                    assert_eq!(got, want.replace('\n', line_end), "{key} {line_end:?}");
                } else {
                    let kept: Vec<&str> = file.trim_start_matches('\u{feff}').lines().collect();
                    let mut after = got.lines();
                    let same = |old: &&str| {
                        *old == "at=\"01:00\"" && key == "night.at" || after.any(|new| new == *old)
                    };
                    assert!(kept.iter().all(same), "{key}: {got:?}");
                }
                let read: Table = toml::from_str(&got).unwrap();
                let mut at = Some(&Value::Table(read)).cloned();
                for part in key.split('.') {
                    at = at.and_then(|value| value.get(part).cloned());
                }
                assert_eq!(at, Some(overrides::value(value)), "{key}: {got}");
                tried += 1;
            }
        }
    }
    assert!(tried > 120, "{tried}");
}

#[test]
fn invalid_settings_are_refused() {
    for (key, value, why) in [
        ("night.at", "25:00", "not a time of day"),
        ("night.att", "23:00", "runner config set night.at 23:00"),
        ("jobs.dream.max_ideas", "many", "max_ideas"),
        ("jobs.dream.trigger", "after draem", "did you mean \"dream\""),
        ("jobs.dream", "3", "this is a table"),
        ("night.at.x", "3", "no setting"),
        ("project.id", "x", "runner init"),
        ("daemon.drain", "3s", "--user"),
        ("jobs.new.program", "x", "no kind"),
        ("", "x", "no setting"),
    ] {
        let said = set(COMMENTED, key, value).unwrap_err();
        assert_eq!(said.exit, runner_engine::outcome::Exit::Configuration);
        assert!(said.to_string().contains(why), "{key}: {said}");
    }
    assert!(
        set("[night\n", "night.at", "23:00").unwrap_err().to_string().contains("runner.toml:1:")
    );
}

#[test]
fn set_can_fix_an_invalid_file() {
    let text = "[night]\nat = \"25:00\"\n\n[jobs.dream]\nmax_idea = 3\n";
    let half = set(text, "night.at", "01:00").unwrap();
    assert_eq!(half, text.replace("25:00", "01:00"));
    assert!(set(text, "night.length", "x").is_err());
}

#[test]
fn settings_that_need_each_other_are_set_together() {
    let new = |key: &str, value: &str| SettingChange::Set(key.to_owned(), value.to_owned());
    let (kind, program) = (new("jobs.x.kind", "command"), new("jobs.x.program", "make"));
    for alone in [&kind, &program] {
        let said = change("", std::slice::from_ref(alone)).unwrap_err().to_string();
        assert!(said.contains("runner config set KEY VALUE KEY VALUE"), "{said}");
    }
    for both in [[kind.clone(), program.clone()], [program, kind]] {
        let read: Table = toml::from_str(&change("", &both).unwrap()).unwrap();
        assert_eq!(read["jobs"]["x"]["kind"].as_str(), Some("command"));
        assert_eq!(read["jobs"]["x"]["program"].as_str(), Some("make"));
    }
}

#[test]
fn unset_removes_only_its_setting() {
    let remove = |key: &str| change(COMMENTED, &[SettingChange::Remove(key.to_owned())]);
    for (key, old, new) in [
        ("night.at", "\tat = '02:30'    # manually\n", ""),
        ("night.budget.calls", "calls = 50 # fifty\n", ""),
        ("jobs.dream.budget.calls", "{ calls = 4, money = 1.0 }", "{ money = 1.0 }"),
        ("jobs.dream.max_ideas", "# a comment above\nmax_ideas = 7 # seven\n", ""),
        ("night.length", "length   =\"8h\"# tight\n", ""),
        ("jobs.b.program", "", ""),
    ] {
        assert_eq!(remove(key).unwrap(), COMMENTED.replacen(old, new, 1), "{key}");
    }
    let without = remove("jobs.a").unwrap();
    assert!(!without.contains("[jobs.a]") && without.contains("[jobs.dream]"), "{without}");
    let said = remove("jobs.a.program").unwrap_err().to_string();
    assert!(said.contains("has no program"), "{said}");
    let said = remove("night.att").unwrap_err().to_string();
    assert!(said.contains("runner config unset night.at"), "{said}");
    // A misspelled setting can be removed.
    let text = "[night]\natt = \"25:00\"\nat = \"01:00\"\n";
    let fixed = change(text, &[SettingChange::Remove("night.att".to_owned())]).unwrap();
    assert_eq!(fixed, "[night]\nat = \"01:00\"\n");
}

#[test]
fn unknown_setting_error_is_short() {
    for (key, names) in [
        ("zebra.stripes", "the sections are"),
        ("zebra", "night"),
        ("jobs.dream.zzzzzzzz", "jobs.dream has"),
    ] {
        let said = set(COMMENTED, key, "1").unwrap_err().to_string();
        assert!(said.contains(names) && said.len() < 600, "{key}: {said}");
    }
}

#[test]
fn toml_keywords_are_text_in_text_settings() {
    for (key, value, written) in [
        ("jobs.a.program", "true", "program = \"true\""),
        ("jobs.a.program", "\"true\"", "program = \"true\""),
        ("jobs.a.enabled", "true", "enabled = true"),
        ("jobs.dream.max_ideas", "3", "max_ideas = 3"),
    ] {
        let text = set(COMMENTED, key, value).unwrap();
        assert!(text.contains(written), "{key}: {text}");
    }
}
