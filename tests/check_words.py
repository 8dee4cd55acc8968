#!/usr/bin/env python3
"""Prints each match of a rule in `words.txt` in *.rs and *.md outside the allow list, and fails if there is one.

    check_words.py [TREE] [--counts] [--word NAME]... [--words FILE] [--limit FILE]

`--limit FILE` names a file with lines `name<TAB>count`. The check then fails only if a rule has more hits than its
count, so that a word can be removed step by step (a ratchet). Code in Markdown and in doc comments is ignored.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# (file prefix, word or `*`, regex for the line or empty, reason)
ALLOW = [
    ("CHANGELOG.md", "*", "", "the changelog keeps historical terms"),
    ("engine/tests/fixtures/", "*", "", "frozen formats"),
    ("config/demo/", "*", "", "a sample project in its own words"),
    ("jobs/src/sessions/transcript/tests.rs", "*", "", "sentences of other people"),
    ("jobs/src/overnight/council/tests.rs", "mend", "", "sentences of other people"),
    ("tests/cli/", "mend", r"[Mm]end (?:the retry|<b>it)|mended the roof", "sentences of other people"),
    ("tests/cli/council.rs", "mend", "retry", "sentences of other people"),
    ("jobs/src/overnight/", "mend", r"Mend it", "sentences of other people"),
    ("jobs/src/overnight/tests.rs", "moment", "", "sentences of other people"),
    ("tests/cli/overnight/mod.rs", "moment", "", "sentences of other people"),
    ("backends/src/agent/refusal_text.rs", "accounts", "", "a provider's sentence"),
    ("jobs/src/curator/ingest.rs", "mend", r"\{mended\}", "a name"),
    ("jobs/src/dream/decisions.rs", "ledger", "", "contract word: dreams/ledger.md"),
    ("jobs/src/overnight/council/", "ledger", "", "contract file: council/ledger.json"),
    ("jobs/src/overnight/council/", "voices", "", "field of the council's published schemas"),
    ("jobs/src/curator/events.rs", "ledger", "", "contract file: events/ledger.jsonl"),
    ("", "ledger", r"(?:dreams|council|events)/ledger", "contract file names"),
    ("", "walls", r"wall(?: and boot)?[- ](?:clock|time)", "wall-clock time is the standard term"),
    ("", "accounts", r"(?i)\b(?:user|service|cloud|provider'?s?|claude|openai|google) accounts?", "a login, not a budget"),
    ("text/src/terms/stop.rs", "*", "", "a list of English stop words"),
    ("text/src/terms/stem.rs", "*", "", "samples of English words"),
]

COMMENT = re.compile(r"^\s*//[/!]?\s?(.*)$")
TRAILING = re.compile(r"(?<![:\"'])//\s(.*)$")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def rules(path):
    out = []
    with open(path, encoding="utf-8") as h:
        for line in h:
            if line.strip() and not line.startswith("#"):
                name, where, regex, instead = line.rstrip("\n").split("\t")
                out.append((name, where, re.compile(regex), instead))
    return out


def files(tree):
    out = subprocess.run(["git", "-C", tree, "ls-files", "*.rs", "*.md"], check=True, capture_output=True, text=True)
    return [f for f in out.stdout.splitlines() if os.path.isfile(os.path.join(tree, f))]


def parts(file, text):
    """Yields (line number, kind, text, begins). `kind` is `prose`, `string` or `code`; `begins`: a sentence starts here."""
    if file.endswith(".md"):
        fence, begin = False, True
        for n, line in enumerate(text.split("\n"), 1):
            if line.lstrip().startswith("```"):
                fence = not fence
                continue
            if fence:
                continue
            stripped = line.strip()
            heading = stripped.startswith(("#", "-", "*", "|", ">")) or re.match(r"\d+\. ", stripped) is not None
            body = re.sub(r"^(?:[#>|*-]+|\d+\.)\s*", "", stripped)
            yield n, "prose", re.sub(r"`[^`]*`", "`_`", body), begin or heading
            begin = not stripped or stripped.endswith((".", ":", "?", "!", "|"))
        return
    fence, before = False, False
    previous = ""
    for n, line in enumerate(text.split("\n"), 1):
        m = COMMENT.match(line)
        if m:
            body = m.group(1)
            if body.lstrip().startswith("```"):
                fence = not fence
                before = True
                continue
            if not fence:
                begin = not before or not previous or previous.endswith((".", ":", "?", "!"))
                yield n, "prose", re.sub(r"`[^`]*`", "`_`", body), begin
            before, previous = True, body.strip()
            continue
        before, fence = False, False
        code = line
        t = TRAILING.search(code)
        if t and code[: t.start()].count('"') % 2 == 0:
            yield n, "prose", re.sub(r"`[^`]*`", "`_`", t.group(1)), True
            code = code[: t.start()]
        for s in STRING.finditer(code):
            if " " in s.group(1):
                yield n, "string", s.group(1), False
        yield n, "code", STRING.sub('""', code), False


def allowed(file, name, line):
    for prefix, word, regex, _ in ALLOW:
        if file.startswith(prefix) and word in ("*", name) and (not regex or re.search(regex, line)):
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", default=".")
    parser.add_argument("--words", default=os.path.join(HERE, "words.txt"))
    parser.add_argument("--word", action="append", help="check only this rule")
    parser.add_argument("--counts", action="store_true", help="print the number of hits per rule and exit")
    parser.add_argument("--limit", help="file with the number of accepted hits per rule")
    args = parser.parse_args()
    kinds = {"prose": ("prose",), "text": ("prose", "string"), "code": ("code",), "sentence": ("prose",)}
    wanted = [r for r in rules(args.words) if not args.word or r[0] in args.word]
    hits = collections.defaultdict(list)
    for file in files(args.tree):
        with open(os.path.join(args.tree, file), encoding="utf-8") as h:
            text = h.read()
        lines = text.split("\n")
        for n, kind, body, begins in parts(file, text):
            for name, where, regex, instead in wanted:
                if kind not in kinds[where]:
                    continue
                if where == "sentence":
                    found = (begins and regex.match(body)) or re.search(r"[.:!?] (?:" + regex.pattern + ")", body)
                else:
                    found = regex.search(body)
                if found and not allowed(file, name, lines[n - 1]):
                    hits[name].append((file, n, instead, lines[n - 1].strip()[:110]))
    if args.counts:
        for name, *_ in wanted:
            print(f"{len(hits[name]):6}  {name}")
        return 0
    limits = {}
    if args.limit:
        with open(args.limit, encoding="utf-8") as h:
            limits = {k: int(v) for k, v in (line.split("\t") for line in h if line.strip())}
    failed = 0
    for name, found in hits.items():
        if len(found) > limits.get(name, 0):
            failed += len(found)
            for file, n, instead, line in found:
                print(f"{file}:{n}: {name} (write: {instead}): {line}")
    if failed:
        print(f"{failed} hits", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
