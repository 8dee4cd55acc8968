use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn file(folder: &tempfile::TempDir) -> StepsFile {
    StepsFile::new(folder.path(), FILE, None)
}

fn used<'a>(id: &'a str, name: &'a str, target: Target<'a>) -> Event<'a> {
    Event::ToolUse { id, name, target: Some(target) }
}

fn back<'a>(
    id: &'a str,
    failed: bool,
    exit_code: Option<i64>,
    error: Option<&'a str>,
) -> Event<'a> {
    Event::ToolResult(ToolResult { id, failed, exit_code, error })
}

#[test]
fn each_tool_call_becomes_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let steps = StepsFile { agent: Some("night".into()), ..file(&folder) };
    let mut recorder = Recorder::new(steps.clone(), Redactor::new(vec!["hunter-two".into()]));
    let inside = folder.path().join("src/a.rs");
    recorder.event(used("1", "Write", Target::Path(inside.to_str().unwrap())), at(0));
    recorder.event(used("2", "Bash", Target::Command("make --key hunter-two")), at(1));
    recorder.event(back("2", true, Some(2), Some("no rule, hunter-two")), at(3));
    recorder.event(back("1", false, None, None), at(4));
    recorder.event(used("3", "Grep", Target::Pipeline("needle")), at(5));
    recorder.event(back("unknown", true, None, None), at(6));
    recorder.event(Event::Text("not a step"), at(6));
    recorder.ended(at(7));
    let text = fs::read_to_string(folder.path().join(FILE)).unwrap();
    assert!(!text.contains("hunter-two"), "{text}");
    let first: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    let expected = serde_json::json!({
        "step": 2, "tool": "Write", "args": {"path": "src/a.rs"}, "exit_code": 0, "error": null,
        "dur_ms": 4000, "ts": at(4).to_string(), "agent": "night",
    });
    assert_eq!(first, expected);
    let rows = steps.last(25).unwrap();
    let lines: Vec<String> = rows.iter().map(ToolStep::line).collect();
    assert_eq!(lines[0][..17], *"Bash make --key [");
    assert!(lines[0].ends_with("(exit 2)"), "{}", lines[0]);
    assert_eq!(lines[1..], ["Write src/a.rs (exit 0)", "? (exit 1)", "Grep needle (exit -1)"]);
    assert_eq!(rows[3].error.as_deref(), Some("it did not return"));
    assert_eq!(steps.last(2).unwrap(), rows[2..]);
    let mode = fs::metadata(folder.path().join(FILE)).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn step_line_is_cut_at_eighty_characters() {
    let redactor = Redactor::new(Vec::new());
    let long = format!("echo\n\"{}\"", "é".repeat(200));
    let step = ToolStep::of("Bash", Some(Target::Command(&long)), Path::new("/p"), &redactor);
    let line = step.line();
    assert_eq!(line.lines().count(), 1);
    assert_eq!(line.chars().count(), "Bash ".len() + 80 + " (exit 0)".len());
    let row = serde_json::to_string(&step).unwrap();
    assert!(row.len() < LONGEST + 200, "{}", row.len());
}

#[test]
fn full_file_rotates_and_last_rows_span_both() {
    let folder = tempfile::tempdir().unwrap();
    let steps = StepsFile { cap: 2_000, ..file(&folder) };
    for number in 0..40 {
        let step = ToolStep { tool: format!("t{number}"), ..ToolStep::default() };
        steps.append(step, at(number)).unwrap();
    }
    let tools = |rows: Vec<ToolStep>| rows.into_iter().map(|it| it.tool).collect::<Vec<_>>();
    let last = tools(steps.last(25).unwrap());
    let expected: Vec<String> = (15..40).map(|number| format!("t{number}")).collect();
    assert_eq!(last, expected);
    assert!(fs::metadata(folder.path().join(FILE)).unwrap().len() < 2_200);
    assert!(folder.path().join(OLDER).exists());
    // While the lock is held, the file grows up to its limit without rotation.
    let held = steps.hold_lock().unwrap();
    let mut written = 0;
    while steps.append(ToolStep::default(), at(99)).is_ok() {
        written += 1;
        assert!(written < 1_000);
    }
    let size = fs::metadata(folder.path().join(FILE)).unwrap().len();
    assert!((16_000..16_300).contains(&size), "{size}");
    drop(held);
    steps.append(ToolStep::default(), at(99)).unwrap();
    assert!(fs::metadata(folder.path().join(FILE)).unwrap().len() < 500);
}

#[test]
fn concurrent_writers_lose_and_tear_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let steps =
                StepsFile { cap: 20_000, agent: Some(format!("w{writer}")), ..file(&folder) };
            scope.spawn(move || {
                for number in 0..25 {
                    let step = ToolStep { tool: format!("t{number}"), ..ToolStep::default() };
                    steps.append(step, at(number)).unwrap();
                }
            });
        }
    });
    let both = [folder.path().join(OLDER), folder.path().join(FILE)];
    let text: String = both.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    // A writer that reads while another one writes may mistake the last row for an incomplete one.
    // It then writes an empty line, and no row is lost.
    let rows: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(rows.iter().all(|row| serde_json::from_str::<ToolStep>(row).is_ok()));
    assert_eq!(rows.len(), 200);
}

#[test]
fn special_files_are_refused_and_damage_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let steps = file(&folder);
    assert_eq!(steps.last(25).unwrap(), []);
    let path = folder.path().join(FILE);
    let other = folder.path().join("other");
    fs::write(&other, "").unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    assert!(steps.append(ToolStep::default(), at(0)).is_err() && steps.last(1).is_err());
    assert_eq!(fs::read(&other).unwrap(), b"");
    fs::remove_file(&path).unwrap();
    fs::hard_link(&other, &path).unwrap();
    assert!(steps.append(ToolStep::default(), at(0)).is_err());
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(steps.append(ToolStep::default(), at(0)).is_err() && steps.last(1).is_err());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "{half\n\0\0\n[]\n7\n{\"tool\":\"Edit\"}\n{\"tool\":3}\n{\"tool\":\"to")
        .unwrap();
    let tools: Vec<String> = steps.last(25).unwrap().into_iter().map(|it| it.tool).collect();
    assert_eq!(tools, ["Edit"]);
    steps.append(ToolStep { tool: "Next".into(), ..ToolStep::default() }, at(0)).unwrap();
    assert_eq!(steps.last(1).unwrap()[0].tool, "Next", "an incomplete row hid a later row");
}

#[test]
fn hook_payload_becomes_row_or_is_refused() {
    let redactor = Redactor::new(Vec::new());
    let row = |text: &str| of_hook(text.as_bytes(), Path::new("/p"), &redactor);
    let step = row(r#"{"hook_event_name":"PostToolUse","tool_name":"Edit","cwd":"/p",
        "tool_input":{"file_path":"/p/src/Weave.svelte"},"tool_response":{"filePath":"x"}}"#)
    .unwrap();
    assert_eq!(step.line(), "Edit src/Weave.svelte (exit 0)");
    let step = row(r#"{"tool_name":"Bash","tool_input":{"command":"false"},"duration_ms":7,
        "tool_response":{"stdout":"","stderr":"no","interrupted":true}}"#)
    .unwrap();
    assert_eq!((step.exit_code, step.error.as_deref(), step.dur_ms), (1, Some("no"), 7));
    assert_eq!(row(r#"{"tool_name":"mcp__x__y"}"#).unwrap().line(), "mcp__x__y (exit 0)");
    for bad in ["", "{", "[]", "{}", "{\"tool_name\":3}", "null"] {
        assert!(row(bad).is_err(), "{bad}");
    }
    assert!(of_hook(&[0xff], Path::new("/p"), &redactor).is_err());
}
