//! Draws the application: the tabs, the current view, and the keys. This module is pure.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as TableRow, Table, TableState, Tabs};

use super::app::{App, RunsView, Tab};
use super::proposals;
pub use super::rows::Palette;
use super::rows::{CellStyle, Row, shown};
use super::viewer::Viewer;

const OVERVIEW_KEYS: &str =
    " j k scroll  / search  enter runs  p pause all  tab view  ? help  q quit";
const LIST_KEYS: &str =
    " j k choose  enter open  l log  c cancel  r retry  p pause  ? help  q quit";
const DETAILS_KEYS: &str =
    " j k scroll  l log  c cancel  r retry  p pause  / search  ? help  q back";
const LOG_KEYS: &str =
    " j k scroll  f follow  c cancel  r retry  p pause  / search  ? help  q back";
const ASKED_KEYS: &str = " y: yes  any other key: no";
const SEARCH_KEYS: &str = " enter: keep  esc: clear";
const HELP: &str = "\
tab, 1 2 3    show the overview, the runs or the proposals
j k, arrows   move or scroll; space and page keys move a page
g G           go to the beginning or the end
/             show only lines that contain a text; escape clears it
enter         open a run or a proposal
l             open the log of a run and follow its end
f             follow the end of the log again
c             cancel the run, after a confirmation
r             retry the run: queue another attempt
p             pause or resume the run's job or, in the overview, everything
?             show this help or, in the proposals, the keys for decisions
q, escape     leave the view or, in the first view, the application

In the proposals, a accepts, r rejects, m amends, s skips and u undoes, like
`runner dream accept`, `reject`, `amend`, `skip` and `undo`.";

pub fn draw(frame: &mut Frame<'_>, app: &mut App, palette: Palette) {
    let [tabs, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(frame.area());
    draw_tabs(frame, app, palette, tabs);
    let (width, height) = (usize::from(body.width), usize::from(body.height));
    if app.help {
        let mut rows = Row::wrapped(CellStyle::Plain, HELP, width);
        rows.resize(height.saturating_sub(1), Row::default());
        rows.push(Row::bar(" any key: back", width));
        return draw_rows(frame, &rows, palette, body);
    }
    if let (Tab::Proposals, Ok(review)) = (app.tab, &mut app.proposals) {
        return draw_rows(frame, &proposals::rows(review, width, height), palette, body);
    }
    let footer = footer(app, width);
    let below = u16::try_from(footer.len()).unwrap_or(1);
    let [body, bottom] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(body);
    match (app.tab, &mut app.runs) {
        (Tab::Overview, _) => draw_overview(frame, app, palette, body),
        (Tab::Runs, RunsView::List) => draw_runs(frame, app, palette, body),
        (Tab::Runs, RunsView::Details(viewer) | RunsView::Log(viewer)) => {
            draw_viewer(frame, viewer, palette, body);
        }
        (Tab::Proposals, _) => {
            let why = app.proposals.as_ref().err().map_or("", String::as_str);
            draw_rows(frame, &Row::wrapped(CellStyle::Plain, why, width), palette, body);
        }
    }
    draw_rows(frame, &footer, palette, bottom);
}

fn draw_tabs(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    let titles = Tab::ALL.map(|tab| match (tab, &app.proposals) {
        (Tab::Proposals, Ok(review)) if review.counts().0 > 0 => {
            format!("{} ({})", tab.title(), review.counts().0)
        }
        _ => tab.title().to_owned(),
    });
    let at = Tab::ALL.iter().position(|tab| *tab == app.tab);
    let tabs = Tabs::new(titles)
        .select(at)
        .style(CellStyle::Plain.style(palette))
        .highlight_style(CellStyle::Bar.style(palette))
        .divider("│");
    frame.render_widget(tabs, area);
}

/// Returns the message or prompt, and the keys of the current view.
fn footer(app: &App, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(trouble) = &app.trouble {
        rows.extend(Row::wrapped(CellStyle::Bad, trouble, width));
    }
    if let Some(news) = &app.news {
        rows.extend(Row::wrapped(CellStyle::Good, news, width));
    }
    if let Some(action) = app.asked() {
        rows.extend(Row::wrapped(CellStyle::Strong, &action.question(), width));
    }
    let search = app.typed_search();
    if let Some(search) = search {
        rows.push(Row::cut(CellStyle::Strong, &format!("search text: {}▏", search.text), width));
    }
    let keys = match (app.tab, &app.runs) {
        _ if app.asked().is_some() => ASKED_KEYS,
        _ if search.is_some() => SEARCH_KEYS,
        (Tab::Overview, _) => OVERVIEW_KEYS,
        (Tab::Runs, RunsView::List) => LIST_KEYS,
        (Tab::Runs, RunsView::Details(_)) => DETAILS_KEYS,
        (Tab::Runs, RunsView::Log(_)) => LOG_KEYS,
        (Tab::Proposals, _) => " tab view  ? help  q quit",
    };
    rows.push(Row::bar(keys, width));
    rows
}

/// Draws the status, with the most recent runs in the rows below it.
fn draw_overview(frame: &mut Frame<'_>, app: &mut App, palette: Palette, area: Rect) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let rows = app.overview.rows(width, height);
    let used = u16::try_from(rows.len()).unwrap_or(area.height).min(area.height);
    draw_rows(frame, &rows, palette, area);
    // Fewer rows than a header and two runs are not useful.
    if area.height.saturating_sub(used) >= 4 && !app.table().rows.is_empty() {
        let [_, below] =
            Layout::vertical([Constraint::Length(used + 1), Constraint::Min(0)]).areas(area);
        draw_table(frame, app, palette, (below, None));
    }
}

fn draw_runs(frame: &mut Frame<'_>, app: &App, palette: Palette, area: Rect) {
    if app.visible().is_empty() {
        let text = match app.table().rows.len() {
            0 => app.table().nothing.as_str(),
            _ => "No run matches the search; escape shows all.",
        };
        let rows = Row::wrapped(CellStyle::Strong, text, usize::from(area.width));
        return draw_rows(frame, &rows, palette, area);
    }
    draw_table(frame, app, palette, (area, app.selected()));
}

/// Draws the list of runs, and marks the selected run if there is one.
fn draw_table(
    frame: &mut Frame<'_>,
    app: &App,
    palette: Palette,
    (area, selected): (Rect, Option<usize>),
) {
    let table = app.table();
    let visible = app.visible();
    let cell = |text: &String| shown(text);
    let rows = visible.iter().map(|(tone, row)| {
        let cells = row.iter().enumerate().map(|(at, text)| {
            let style = if at == table.toned { CellStyle::from(*tone) } else { CellStyle::Plain };
            Cell::new(Line::styled(cell(text), style.style(palette)))
        });
        TableRow::new(cells)
    });
    // The last column takes up the rest of the row.
    let last = table.header.len().saturating_sub(1);
    let widths = (0..table.header.len()).map(|at| match at {
        at if at == last => Constraint::Fill(1),
        // The beginning of an id identifies a run among the most recent ones.
        0 if area.width < 120 => Constraint::Length(column_width(app, 0).min(12)),
        at => Constraint::Length(column_width(app, at)),
    });
    let header = table.header.iter().map(cell);
    let drawn = Table::new(rows, widths)
        .header(TableRow::new(header).style(CellStyle::Strong.style(palette)))
        .column_spacing(2)
        .row_highlight_style(CellStyle::Bar.style(palette));
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(drawn, area, &mut state);
}

/// Returns the width of a column: that of its longest cell, at most 26 columns.
fn column_width(app: &App, at: usize) -> u16 {
    let table = app.table();
    let texts = app.visible().into_iter().map(|(_, row)| row).chain([&table.header]);
    let longest = texts.filter_map(|row| Some(super::rows::columns(row.get(at)?))).max();
    u16::try_from(longest.unwrap_or(0).min(26)).unwrap_or(26)
}

fn draw_viewer(frame: &mut Frame<'_>, viewer: &mut Viewer, palette: Palette, area: Rect) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let follows = if viewer.follows() { " · follows the end" } else { "" };
    let mut rows = vec![Row::bar(&format!(" {}{follows}", viewer.title), width)];
    rows.extend(viewer.rows(width, height.saturating_sub(1)));
    draw_rows(frame, &rows, palette, area);
}

fn draw_rows(frame: &mut Frame<'_>, rows: &[Row], palette: Palette, area: Rect) {
    for (row, area) in rows.iter().zip(area.rows()) {
        frame.render_widget(row.line(palette), area);
    }
}
