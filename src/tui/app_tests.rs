//! Tests the application key by key, and takes snapshots of its views at two sizes.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::paint::{Palette, draw};
use super::super::proposals::three;
use super::*;

fn runs() -> RunTable {
    let row = |tone, id: &str, state: &str, why: &str| {
        let cells = [id, "dream", state, "2026-11-22 02:30", why];
        (tone, cells.map(str::to_owned).to_vec())
    };
    RunTable {
        header: ["RUN", "JOB", "STATE", "REQUESTED", "RESULT"].map(str::to_owned).to_vec(),
        toned: 2,
        rows: vec![
            row(Tone::Plain, "01KA5V7Q4B3", "running", ""),
            row(Tone::Bad, "01KA5V7Q4B2", "failed", "the reply has no proposals\u{1b}[2J"),
            row(Tone::Good, "01KA5V7Q4B1", "succeeded", "2 proposals, 1 of them new"),
        ],
        nothing: "no runs yet".to_owned(),
    }
}

fn app() -> App {
    let mut app = App::new(Tab::Overview);
    let bad = "  FAILED  dream (malformed): the reply has no proposals — look at the reply";
    app.overview.set(vec![
        (Tone::Plain, "/home/ada/notes".to_owned()),
        (Tone::Bad, bad.to_owned()),
        (Tone::Plain, "  last night  2026-11-22: 1 failed, 1 succeeded".to_owned()),
        (Tone::Plain, "  waiting     2 proposals to decide on; `runner dream review`".to_owned()),
        (Tone::Plain, "  next due    dream at 2026-11-23 02:30:00 CET".to_owned()),
        (Tone::Plain, "  day left    12 of 20 calls, $0.76 of $2.00".to_owned()),
        (Tone::Plain, "no daemon".to_owned()),
    ]);
    app.set_runs(runs());
    app.proposals = Ok(three());
    app
}

/// Presses the keys in `text` and returns the state and the last request.
fn press(mut app: App, text: &str) -> (App, Option<Request>) {
    let mut last = None;
    for letter in text.chars() {
        let key = match letter {
            '\n' => Input::Enter,
            '\u{1b}' => Input::Escape,
            '\t' => Input::Tab,
            letter => Input::Char(letter),
        };
        (app, last) = app.update(key);
    }
    (app, last)
}

fn screen(app: &mut App, width: u16, height: u16, palette: Palette) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, palette)).unwrap();
    terminal
}

/// Opens the log of a run, as the loop does.
fn opened_log(mut app: App) -> App {
    let mut log = Viewer::following("log of run 01KA5V7Q4B3".to_owned(), "01KA5V7Q4B3".to_owned());
    log.append(&(0..100).map(|line| format!("02:30:{line:02} line {line}\n")).collect::<String>());
    app.runs = RunsView::Log(log);
    app
}

#[test]
fn views_match_snapshots() {
    for (width, height) in [(80, 24), (200, 60)] {
        let mut views = vec![("overview", app())];
        views.push(("runs", press(app(), "\tj").0));
        views.push(("search", press(app(), "\t/fail").0));
        views.push(("log", opened_log(press(app(), "\t").0)));
        views.push(("proposals", press(app(), "3").0));
        views.push(("question", press(app(), "\tjc").0));
        let mut done = press(app(), "\tj").0;
        done.news = Some("dream is paused until `runner resume dream`".to_owned());
        views.push(("news", done));
        views.push(("help", press(app(), "?").0));
        for (name, mut app) in views {
            let terminal = screen(&mut app, width, height, Palette::Colours);
            insta::assert_snapshot!(format!("{name}_{width}x{height}"), terminal.backend());
        }
    }
}

#[test]
fn no_colour_is_shown_in_monochrome() {
    use ratatui::style::Color;
    for (palette, coloured) in [(Palette::Colours, true), (Palette::Monochrome, false)] {
        let mut any = false;
        for keys in ["", "\t", "3", "3\n"] {
            let mut app = press(app(), keys).0;
            let terminal = screen(&mut app, 80, 24, palette);
            let cells = &terminal.backend().buffer().content;
            any |= cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        }
        assert_eq!(any, coloured, "{palette:?}");
    }
}

#[test]
fn tab_and_digits_choose_the_view() {
    for (keys, tab) in [
        ("", Tab::Overview),
        ("\t", Tab::Runs),
        ("\t\t", Tab::Proposals),
        ("\t\t\t", Tab::Overview),
        ("3", Tab::Proposals),
        ("32", Tab::Runs),
        ("2/3", Tab::Runs),
        ("3mm1", Tab::Proposals),
        ("\n", Tab::Runs),
    ] {
        assert_eq!(press(app(), keys).0.tab, tab, "{keys:?}");
    }
    assert_eq!(app().update(Input::BackTab).0.tab, Tab::Proposals);
    assert_eq!(press(app(), "\t").1, Some(Request::Load), "changing the tab loads current data");
}

#[test]
fn q_leaves_every_view() {
    for keys in ["q", "\tq", "3q", "3\nqq", "\u{1b}", "?xq", "\t/a\nq"] {
        assert_eq!(press(app(), keys).1, Some(Request::Quit), "{keys:?}");
    }
    let (with_log, _) = press(app(), "\t");
    let (log, request) = press(opened_log(with_log), "q");
    assert_eq!(request, Some(Request::Details("01KA5V7Q4B3".to_owned())), "{:?}", log.runs);
    let mut details = press(app(), "\t").0;
    details.runs = RunsView::Details(Viewer::new("run".to_owned(), Some("R".to_owned())));
    let (list, request) = press(details, "q");
    assert_eq!((&list.runs, request), (&RunsView::List, Some(Request::Load)));
    assert_eq!(press(app(), "3aaq").0.tab, Tab::Proposals, "q first leaves the card");
    assert_eq!(app().update(Input::Stop).1, Some(Request::Quit));
}

#[test]
fn runs_are_chosen_and_opened() {
    let details = |id: &str| Some(Request::Details(id.to_owned()));
    assert_eq!(press(app(), "\t\n").1, details("01KA5V7Q4B3"));
    assert_eq!(press(app(), "\tjjjjk\n").1, details("01KA5V7Q4B2"));
    assert_eq!(press(app(), "\tG\n").1, details("01KA5V7Q4B1"));
    assert_eq!(press(app(), "\t/FAILED\n\n").1, details("01KA5V7Q4B2"));
    assert_eq!(press(app(), "\tl").1, Some(Request::Log("01KA5V7Q4B3".to_owned())));
    let (mut chosen, _) = press(app(), "\tj");
    let mut grown = runs();
    grown.rows.insert(0, (Tone::Plain, vec!["01KA5V7Q4B4".to_owned()]));
    chosen.set_runs(grown);
    assert_eq!(
        press(chosen, "\n").1,
        details("01KA5V7Q4B2"),
        "a new run does not move the selection"
    );
    assert_eq!(press(app(), "\t/nothing\n\n").1, None);
}

#[test]
fn runs_are_cancelled_retried_and_paused() {
    let act = |action| Some(Request::Act(action));
    let second = || "01KA5V7Q4B2".to_owned();
    assert_eq!(press(app(), "\tjc").1, None, "a run is cancelled only after a confirmation");
    assert_eq!(press(app(), "\tjcy").1, act(Action::Cancel(second())));
    for other in ["n", "c", "q", "\n", "\u{1b}", " "] {
        let (left, request) = press(app(), &format!("\tjc{other}"));
        assert_eq!((request, left.asked(), left.tab), (None, None, Tab::Runs), "{other:?}");
    }
    assert_eq!(press(app(), "\tjr").1, act(Action::Retry(second())));
    assert_eq!(press(app(), "\tjp").1, act(Action::SwitchJob(second())));
    assert_eq!(press(app(), "p").1, act(Action::SwitchAll));
    assert_eq!(press(app(), "\t/cp\nr").1, None, "no run is visible");
    let (searched, request) = press(app(), "\t/crp");
    assert_eq!((searched.search.text.as_str(), request), ("crp", None), "letters are search text");
    for view in ["c", "cy", "r", "p"] {
        let (_, request) = press(opened_log(press(app(), "\t").0), view);
        let first = "01KA5V7Q4B3".to_owned();
        let expected = match view {
            "c" => None,
            "cy" => act(Action::Cancel(first)),
            "r" => act(Action::Retry(first)),
            _ => act(Action::SwitchJob(first)),
        };
        assert_eq!(request, expected, "{view}");
    }
    let mut asked = app();
    asked.ask(Action::PauseAll);
    assert_eq!(press(asked, "y").1, act(Action::PauseAll));
}

#[test]
fn decisions_become_requests() {
    let (_, request) = press(app(), "3\na");
    assert!(matches!(request, Some(Request::Proposal(Effect::Decide { .. }))), "{request:?}");
}

#[test]
fn no_size_is_too_small() {
    for width in 1..=90 {
        for height in 1..=26 {
            for keys in ["", "\t", "\t/x", "\tc", "3", "3\n", "?"] {
                screen(&mut press(app(), keys).0, width, height, Palette::Colours);
            }
            screen(&mut opened_log(press(app(), "\t").0), width, height, Palette::Colours);
        }
    }
}

#[test]
fn every_key_in_every_view_is_harmless() {
    let special = [Input::Up, Input::Down, Input::PageUp, Input::PageDown, Input::Home, Input::End];
    let more = [Input::Enter, Input::Escape, Input::Backspace, Input::Tab, Input::BackTab];
    let all: Vec<Input> =
        (' '..='~').map(Input::Char).chain(special).chain(more).chain([Input::Resized]).collect();
    for start in ["", "\t", "3"] {
        for first in &all {
            for second in &all {
                let (app, _) = press(app(), start);
                let (app, _) = app.update(*first);
                let (mut app, _) = app.update(*second);
                if first == second {
                    screen(&mut app, 80, 24, Palette::Colours);
                }
            }
        }
    }
}
