"""Words in comments, messages and documents. Only rules that leave a correct sentence; the rest is for `check_words.py`
to list and for people to write anew."""
import re

FIX = [
    (r"to mend it: ", "fix: "),
    (r"to mend it(?=\")", "fix: "),
]

# Words that are the same in prose and in messages.
PROSE = [
    (r"\b([Aa]n?|[Oo]ne|[Ee]ach|[Ee]very|[Aa]ny|[Nn]o) (run|step|pass|tick|night|decision|change|iteration|copy|backup|cycle) by hand\b",
     lambda m: f"{'a' if m.group(1) in ('a', 'an') else 'A' if m.group(1) in ('A', 'An') else m.group(1)} manual {m.group(2)}"),
    (r"\b(runs|steps|passes|ticks|nights|decisions|changes) by hand\b", r"manual \1"),
    (r"\b(successful|further|single|first|second|last|new|other) (run|step|pass|copy) by hand\b", r"\1 manual \2"),
    (r"\bBy hand\b", "Manually"),
    (r"\bby hand\b", "manually"),
    (r"\bout of bounds\b", "outside its scope"),
    (r"\bthe ledger's\b", "the database's"),
    (r"(?<![\w/\".`\[-])ledgers(?![\w\"/`\]-])", "databases"),
    (r"(?<![\w/\".`\[-])ledger(?![\w\"/`\]-]|\.(?:md|json|jsonl|sqlite|format|damaged))", "database"),
    (r"(?<![\w/\".`\[-])Ledger(?![\w\"/`\]:-]|\.(?:md|json|sqlite))", "Database"),
    (r"\braises (?:the |its )?walls\b", "sets up the sandbox"),
    (r"\braise (?:the |its )?walls\b", "set up the sandbox"),
    (r"\bwalls cannot be raised\b", "the sandbox cannot be set up"),
    (r"\b(the )?walls were raised\b", "the sandbox was set up"),
    (r"\bwalls? be raised\b", "the sandbox be set up"),
    (r"\blevel of walls\b", "sandbox level"),
    (r"\bwalls of (its|their|his) own\b", r"a sandbox of \1 own"),
    (r"\b[Ww]hat walls (are|would be) made of\b", lambda m: f"{m.group(0)[:4]} a sandbox {'is' if m.group(1) == 'are' else 'would be'} made of"),
    (r"\b(what|while) walls (refuse|keep|cover)\b", lambda m: f"{m.group(1)} the sandbox {m.group(2)}s"),
    (r"\b(which|its|that) walls (only )?(open|keep|let|know|make|stand)\b", lambda m: f"{'which the' if m.group(1) == 'which' else m.group(1)} sandbox {m.group(2) or ''}{m.group(3)}s"),
    (r"\b([Ss]pends?|spent|spending) from (?:the |which )?accounts\b", r"\1 from the budgets"),
    (r"\bbehind (?:the same |the real |the |real |its )?walls\b", "inside the sandbox"),
    (r"\b[Ww]ithout walls\b", lambda m: ("W" if m.group(0)[0] == "W" else "w") + "ithout a sandbox"),
    (r"\bwith walls\b", "with a sandbox"),
    (r"\bfile walls\b", "file sandbox"),
    (r"\bThe walls (are|were|have|hold|cover|stand)\b", lambda m: "The sandbox " + SINGULAR[m.group(1)]),
    (r"\b(the|its|their|no) walls (are|were|have|hold|cover|stand)\b", lambda m: f"{m.group(1)} sandbox {SINGULAR[m.group(2)]}"),
    (r"\bthere are walls\b", "there is a sandbox"),
    (r"(?<![\w/\"`.#])walls(?!\"|')(?![\w\"/`.]\w)", "sandbox"),
    (r"(?<![\w/\"`.])Walls(?![\w\"/`.:]\w|::)", "Sandbox"),
    (r"\bconfinement\b", "sandbox"),
    (r"\bConfinement\b", "Sandbox"),
    (r"(?<![\w\"`])containment(?![\w\"`])", "sandbox"),
    (r"\bthe wardens?\b", "the launch supervisor"),
    (r"\bThe warden\b", "The launch supervisor"),
    (r"\bblockers\b", "mount placeholders"),
    (r"\bblocker\b", "mount placeholder"),
    (r"\bearlier moment(?!s)\b", "earlier scheduled time"),
    (r"(?<!random )(?<!civil )(?<!both )(?<!two )\bmoments\b(?!\w|`)", "scheduled times"),
    (r"(?<![\w`/])placements(?![\w`])", "publications"),
    (r"(?<![\w`/])placement(?![\w`])", "publication"),
    (r"(?<![\w`/])Placement(?![\w`:])", "Publication"),
    (r"\bthe accounts\b", "the budget usage"),
    (r"\bfile's accounts\b", "file's budget usage"),
    (r"\btape\b", "recording"),
]
SINGULAR = {"are": "is", "were": "was", "have": "has", "hold": "holds", "cover": "covers", "stand": "stands"}

SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|PRAGMA|WHERE|JOIN|VALUES|BEGIN|VACUUM|ATTACH)\b")
FIX = [(re.compile(p), to) for p, to in FIX]
PROSE = [(re.compile(p), to) for p, to in PROSE]

# Contract words: a file whose subject is a contract's ledger keeps the word.
KEEP = ("jobs/src/dream/decisions.rs", "jobs/src/overnight/council/record.rs", "jobs/src/curator/events.rs", "docs/images/")


def prose(text):
    for pattern, to in PROSE:
        if "ouncil" in text and "edger" in pattern.pattern:
            continue  # `council/ledger.json` is a published artifact
        text = pattern.sub(to, text)
    return text


def fix(text):
    for pattern, to in FIX:
        text = pattern.sub(to, text)
    return text


def wrap_comment(old, new, indent):
    return new


def apply(tree, texts_of, read, write, dry, lex):
    count = 0
    for f in texts_of(tree):
        if f.startswith(KEEP) or f.startswith(("config/schemas/", "tests/snapshots/", "engine/src/store/schema")):
            continue
        text = read(tree, f)
        if f.endswith(".rs"):
            out, at = [], 0
            for t in lex(text):
                if t.k == "com":
                    new = t.t if "dreams/ledger" in t.t or "ledger.json" in t.t else prose(fix(t.t))
                elif t.k == "str":
                    if SQL.search(t.t):
                        continue
                    new = fix(t.t)
                    if t.t == '"confinement"':
                        new = '"sandbox"'
                    elif re.search(r"\w [\w{]", new) and "dreams/ledger" not in new:
                        # What is between braces are names, not words.
                        holes = re.findall(r"\{[^{}\s]*\}", new)
                        new = prose(new)
                        rest = iter(holes)
                        new = re.sub(r"\{[^{}\s]*\}", lambda m: next(rest, m.group(0)), new)
                else:
                    continue
                if new != t.t:
                    out.append(text[at:t.a] + new)
                    at = t.b
                    count += 1
            new = "".join(out) + text[at:]
        elif f.endswith(".md"):
            lines = []
            for line in text.split("\n"):
                lines.append(line if "dreams/ledger" in line or "ledger.json" in line or "events/ledger" in line else prose(fix(line)))
            new = "\n".join(lines)
            count += new != text
        elif f.endswith((".toml", ".sh", ".py")) and not f.endswith("Cargo.toml"):
            lines = []
            for line in text.split("\n"):
                head, mark, tail = line.partition("#") if line.lstrip().startswith("#") else (line, "", "")
                lines.append(fix(head) + mark + (prose(tail) if mark else ""))
            new = "\n".join(lines)
            count += new != text
        else:
            new = fix(text)
        if new != text and not dry:
            write(tree, f, new)
    return count
