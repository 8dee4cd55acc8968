//! Tests the index of nights, the search in reports, and the static export.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::fixture::Fixture;

/// Creates a project with three nights, and the report of an older night that is not in the
/// database.
fn with_nights() -> Fixture {
    let fixture = Fixture::with("[jobs.tidy]\nkind = \"command\"\nprogram = \"true\"\n");
    for _ in 0..3 {
        fixture.run(&["night"]).ends(0);
    }
    let nights = fixture.run(&["report", "--list", "--json"]).ends(0).json();
    let first = nights[2]["night"].as_str().unwrap().to_owned();
    let report = format!(".runner/reports/{first}/report.json");
    let lost = fixture.read(&report).replace(&first, "2020-01-01");
    let opened = nights[2]["opened"].as_str().unwrap();
    let lost = lost.replace(opened, "2020-01-01T02:30:00Z").replace("tidy", "oldest <b>job</b>");
    fixture.write(".runner/reports/2020-01-01/report.json", lost);
    // Add a file that is not a report, and a report in a folder whose name no night can have.
    fixture.write(".runner/reports/broken/report.json", "{");
    fixture.write(".runner/reports/a b/report.json", fixture.read(&report));
    fixture
}

/// Returns the targets of all links of a page.
fn links(page: &str) -> Vec<String> {
    let after = page.split("href=\"").skip(1);
    after.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn all_nights_are_listed() {
    let fixture = with_nights();
    let listed = fixture.run(&["report", "--list"]).ends(0);
    listed.expect_text("WORST").expect_text("2020-01-01").expect_text("succeeded");
    let json = fixture.run(&["report", "--list", "--json"]).ends(0).json();
    let names: Vec<&str> =
        json.as_array().unwrap().iter().map(|night| night["night"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!(*names.last().unwrap(), "2020-01-01");
    fixture.run(&["report", "--list", "--open"]).ends(2);
}

#[test]
fn reports_are_searched() {
    let fixture = with_nights();
    let found = fixture.run(&["report", "search", "OLDEST", "--json"]).ends(0).json();
    assert_eq!(found[0]["night"], "2020-01-01", "{found}");
    let all = fixture.run(&["report", "search", "tidy", "--json"]).ends(0).json();
    let nights: BTreeSet<&str> =
        all.as_array().unwrap().iter().map(|line| line["night"].as_str().unwrap()).collect();
    assert!(nights.len() >= 3, "{all}");
    let one = fixture.run(&["report", "search", "tidy", "--limit", "1", "--json"]).ends(0).json();
    assert_eq!(one.as_array().unwrap().len(), 1);
    fixture.run(&["report", "search", "no such text"]).ends(0).expect_text("no report contains");
    fixture.run(&["report", "search", " "]).ends(2);
}

#[test]
fn every_link_of_an_export_works() {
    let fixture = with_nights();
    let into = fixture.root().join("pages");
    let export = ["report", "--export", into.to_str().unwrap()];
    let said = fixture.run(&export).ends(0);
    said.expect_text("index.html").expect_text("is left out");
    let pages = files(&into);
    assert!(pages.contains("2020-01-01.html") && pages.contains("index.html"), "{pages:?}");
    let mut followed = 0;
    for file in pages.iter().filter(|file| file.ends_with(".html")) {
        let page = fs::read_to_string(into.join(file)).unwrap();
        assert!(!page.contains("<script") && !page.contains("<b>job"), "{file}");
        for link in links(&page) {
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if target.is_empty() { file } else { target };
            assert!(pages.contains(target), "{file}: {link}");
            let there = fs::read_to_string(into.join(target)).unwrap();
            assert!(anchor.is_empty() || there.contains(&format!("id=\"{anchor}\"")), "{link}");
            followed += 1;
        }
    }
    assert!(followed > 20, "{followed}");
    // The index links to each night. Each night links to the previous one, so following these links
    // from the newest night reaches every older night.
    let index = fs::read_to_string(into.join("index.html")).unwrap();
    assert_eq!(links(&index).len() + 2, pages.len(), "{pages:?}");
    let mut at = links(&index)[0].clone();
    let mut walked = BTreeSet::from([at.clone()]);
    while let Some(before) = fs::read_to_string(into.join(&at)).unwrap().split_once(" rel=\"prev\"")
    {
        at = links(before.0).pop().unwrap();
        assert!(walked.insert(at.clone()), "{at}");
    }
    assert_eq!(walked.len(), links(&index).len());
}

#[test]
fn export_replaces_only_an_export() {
    let fixture = with_nights();
    let folder = fixture.root().join("out");
    fs::create_dir(&folder).unwrap();
    let into = folder.join("pages");
    let export = ["report", "--export", into.to_str().unwrap()];
    fixture.run(&export).ends(0);
    fs::write(into.join("2019-01-01.html"), "of an earlier export").unwrap();
    fixture.run(&export).ends(0);
    assert!(!into.join("2019-01-01.html").exists());
    assert_eq!(
        files(&folder),
        BTreeSet::from(["pages".to_owned()]),
        "a temporary folder is left behind"
    );

    let mine = folder.join("mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("letter"), "dear").unwrap();
    fixture
        .run(&["report", "--export", mine.to_str().unwrap()])
        .ends(1)
        .expect_text("not replaced");
    assert_eq!(fs::read_to_string(mine.join("letter")).unwrap(), "dear");
    let link = folder.join("link");
    symlink(&into, &link).unwrap();
    fixture.run(&["report", "--export", link.to_str().unwrap()]).ends(1).expect_text("is a link");
    let empty = folder.join("empty");
    fs::create_dir(&empty).unwrap();
    fixture.run(&["report", "--export", empty.to_str().unwrap()]).ends(0);
    assert!(empty.join("index.html").exists());
    let missing = folder.join("none/there");
    fixture.run(&["report", "--export", missing.to_str().unwrap()]).ends(73);
}
