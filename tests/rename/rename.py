#!/usr/bin/env python3
"""Carries out the renames of `table.md` on a checkout of runner.

    rename.py TREE --stage files|types|commands|functions|words|all [--dry]

Everything is found by pattern or by resolving paths, nothing by line number; a row whose old name is gone
is passed over, so a stage may be run again on a tree that has moved on. Commit or stash before.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rustnames import KEYWORDS, Entity, Tree, lex  # noqa: E402

TEXT_EXT = (".rs", ".md", ".toml", ".sh", ".py", ".json", ".org", ".sql", ".txt", ".c", ".yml", ".html", ".css", ".ps1",
            ".service", ".timer", ".xml", ".plist")
LINK = re.compile(r"`((?:[A-Za-z_]\w*)(?:::[A-Za-z_]\w*)*)(\(\))?`|\]\(((?:[A-Za-z_]\w*)(?:::[A-Za-z_]\w*)+)\)")
SERDE = {"with", "from", "into", "try_from", "default", "skip_serializing_if", "serialize_with", "deserialize_with", "value_parser"}


def git(tree, *args):
    return subprocess.run(["git", "-C", tree, *args], check=True, capture_output=True, text=True).stdout


def files_of(tree):
    return [f for f in git(tree, "ls-files").splitlines() if os.path.isfile(os.path.join(tree, f))]


def texts_of(tree):
    for f in files_of(tree):
        base = os.path.basename(f)
        if f.startswith(".ci/") or f.endswith(TEXT_EXT) or base in ("clippy.toml", ".gitignore"):
            if base in ("Cargo.lock",) or "/recorded/" in f or "/fixtures/" in f:
                continue
            yield f


def read(tree, f):
    with open(os.path.join(tree, f), encoding="utf-8") as h:
        return h.read()


def write(tree, f, text):
    with open(os.path.join(tree, f), "w", encoding="utf-8") as h:
        h.write(text)


class Edits:
    def __init__(self, tree):
        self.tree, self.by_file = tree, collections.defaultdict(dict)

    def add(self, file, a, b, new):
        old = self.by_file[file].get((a, b))
        if old is not None and old != new:
            print(f"warning: {file}@{a}: {old} or {new}?")
            return
        self.by_file[file][(a, b)] = new

    def write(self, dry):
        count = 0
        for file, edits in sorted(self.by_file.items()):
            text = read(self.tree, file)
            for (a, b), new in sorted(edits.items(), reverse=True):
                text = text[:a] + new + text[b:]
                count += 1
            if not dry:
                write(self.tree, file, text)
        return count


def rename_entities(tree_dir, plan_of, dry, comments=True):
    """Renames items: `plan_of(entity)` gives an entity's new name, or nothing."""
    tree = Tree(tree_dir)
    edits = Edits(tree_dir)
    memo = {}

    def new_name(e):
        if e is None:
            return None
        if e.key not in memo:
            memo[e.key] = plan_of(e)
        return memo[e.key]

    def edit(file, tok_a, tok_t, e):
        n = new_name(e)
        raw = tok_t
        if n and raw == e.name and n != raw:
            edits.add(file, tok_a, tok_a + len(raw), n)
            return True
        return False

    for file, toks, _ in tree.parsed:
        for t in toks:
            if t.k == "id" and t.decl is not None and not isinstance(t.decl, str):
                edit(file, t.a, t.t, t.decl)
    for file, leaf in tree.uses:
        names = [p.t if p else None for p in leaf.path]
        for ns in ("t", "v"):
            es = tree.resolve_all(names, leaf.scope, ns)
            for p, e in zip(leaf.path, es):
                if p is not None and e is not None:
                    if ns == "v" and p is leaf.path[-1] and not leaf.glob:
                        te = tree.resolve(names, leaf.scope, "t")
                        if te is not None and te.key != e.key and (new_name(te) or new_name(e)):
                            if new_name(te) != new_name(e):
                                print(f"warning: {file}: `use` of {p.t} names a type or module and a value")
                            continue
                    edit(file, p.a, p.t, e)
    for file, toks, module in tree.parsed:
        code = [t for t in toks if t.k != "com"]
        bound = None
        i, n = 0, len(code)
        while i < n:
            t = code[i]
            if t.k == "str" and i >= 2 and code[i - 1].t == "=" and code[i - 2].t in SERDE:
                inner = t.t.strip('"')
                if re.fullmatch(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*", inner):
                    paths(tree, edit, file, inner, t.a + 1, t.scope or module.scope)
                i += 1
                continue
            if t.k == "str" and re.fullmatch(r'"[a-z_]\w*(::\w+){2,}"', t.t):
                # The name of a test, as a test runs itself: from the root of its crate.
                paths(tree, edit, file, t.t.strip('"'), t.a + 1, module.root.scope)
                i += 1
                continue
            if t.k != "id" or t.decl in ("use", "derive", "variant", "assoc") or (t.decl is not None and not isinstance(t.decl, str)):
                i += 1
                continue
            prev = code[i - 1].t if i else ""
            start = i
            lead = None
            if prev == ".":
                i += 1
                continue
            if prev == "::":
                before = code[i - 2] if i >= 2 else None
                if before is not None and (before.k == "id" and before.t not in KEYWORDS or before.t in (">", "crate", "super", "self", "Self")):
                    i += 1
                    continue
                lead = True
            seg = [t]
            j = i + 1
            while j + 1 < n and code[j].t == "::" and code[j + 1].k == "id":
                seg.append(code[j + 1])
                j += 2
            after = code[j] if j < n else None
            after_t = after.t if after else ""
            i = j
            names = ([None] if lead else []) + [s.t for s in seg]
            if t.t in KEYWORDS and t.t not in ("crate", "self", "super"):
                continue
            if len(names) == 1:
                if not t.t[:1].isupper() and (after_t == ":" or prev in ("fn", "let", "mut", "ref", "mod") or (prev == "|" and after_t != "(")):
                    continue
                if after_t == "!":
                    continue
                if after_t == "=" and prev in ("<", ",") and t.t[:1].isupper():
                    continue  # `Iterator<Item = X>`
            scope = t.scope or module.scope
            calls = after_t == "(" or (after_t == "::" and len(seg) >= 1)
            last = seg[-1].t
            if last[:1].isupper():
                order = ("t", "v")
            elif after_t == "(":
                order = ("v", "t")
            elif len(names) > 1:
                order = ("v", "t")
            else:
                order = ("v",)
            if after_t == "::":
                order = ("t",)
            for ns in order:
                es = tree.resolve_all(names, scope, ns)
                if es and es[-1] is not None:
                    break
            if lead:
                es = es[1:]
            if len(names) == 1 and not last[:1].isupper() and after_t not in ("(", "::"):
                e = es[0] if es else None
                if e is None or e.kind != "fn" or not new_name(e):
                    continue
                # Only as an argument of a method: `.map(moment)`, `.map_or(now, moment)`.
                handed = prev == "(" and start >= 3 and code[start - 3].t == "." and after_t in (")", ",")
                if not handed and prev == "," and after_t == ")":
                    k, depth = start - 1, 0
                    while k > 0 and not (code[k].t in "([{" and depth == 0):
                        depth += code[k].t in ")]}"
                        depth -= code[k].t in "([{"
                        k -= 1
                    handed = k >= 2 and code[k].t == "(" and code[k - 2].t == "."
                if not handed or locally_bound(code, start, last):
                    continue
            elif len(names) == 1 and after_t == "(" and not last[:1].isupper() and local_closure(code, start, last):
                continue
            for s, e in zip(seg, es):
                if e is not None:
                    edit(file, s.a, s.t, e)
        if comments:
            for t in toks:
                if t.k != "com":
                    continue
                scope = t.scope or module.scope
                if t.t.startswith("//!"):
                    pass
                for m in LINK.finditer(t.t):
                    g = 1 if m.group(1) else 3
                    linked = t.t[m.start() - 1 : m.start()] == "["
                    inner = m.group(g)
                    if "::" not in inner and not inner[:1].isupper() and not linked:
                        continue
                    paths(tree, edit, file, inner, t.a + m.start(g), scope)
    return edits.write(dry), tree


def paths(tree, edit, file, inner, at, scope):
    names = inner.split("::")
    for ns in (("t", "v") if names[-1][:1].isupper() else ("v", "t")):
        es = tree.resolve_all(names, scope, ns)
        if es and es[-1] is not None:
            break
    for n, e in zip(names, es):
        if e is not None:
            edit(file, at, n, e)
        at += len(n) + 2


def local_closure(code, at, name):
    """Whether `name` is a closure of the enclosing function: `let name = |..|`, or a parameter that is called."""
    i, depth = at, 0
    while i > 0 and not (code[i].t == "fn" and code[i + 1].k == "id" and depth < 0):
        if code[i].t == "}":
            depth += 1
        elif code[i].t == "{":
            depth -= 1
        i -= 1
    for k in range(i + 2, at):
        if code[k].t == name and code[k].k == "id":
            p, a = code[k - 1].t, code[k + 1].t
            b = code[k + 2].t if k + 2 < len(code) else ""
            if p in ("let", "mut") and a == "=" and b in ("|", "move"):
                end, depth = k, 0
                while end < len(code) and not (code[end].t == ";" and depth <= 0):
                    depth += code[end].t in "([{"
                    depth -= code[end].t in ")]}"
                    end += 1
                if end < at:
                    return True
            if a == ":" and b in ("impl", "&", "fn", "Fn", "FnOnce", "FnMut", "F"):
                return True
    return False


def locally_bound(code, at, name):
    """Whether `name` is a local variable around token `at`: looked for in the enclosing function."""
    i, depth = at, 0
    while i > 0 and not (code[i].t == "fn" and depth < 0):
        if code[i].t == "}":
            depth += 1
        elif code[i].t == "{":
            depth -= 1
        i -= 1
    for k in range(i, at):
        if code[k].k == "id" and code[k].t == name and k + 1 < len(code):
            p, a = code[k - 1].t, code[k + 1].t
            if p in ("let", "mut", "ref", "|") or (a == ":" and p in ("(", ",", "&", "mut", "|")):
                return True
            if a in (")", ",", "|", "=", "=>") and p in ("(", ",", "{", "|", "&"):
                # a pattern, or an argument: only a pattern is followed by `=`, `=>`, `in` or `|`
                m = k
                while m < at and code[m].t not in ("=", "=>", "in", "{", ";"):
                    m += 1
                if m < at and code[m].t in ("=", "=>", "in"):
                    return True
    return False


# Stage: files


def moves_of(tree, table):
    """Every file that moves, from the rows for files and folders: {old: new}."""
    moves = {}
    for f in files_of(tree):
        for old, new in table:
            if old.endswith("/"):
                if f.startswith(old):
                    rest = f[len(old):]
                    moves[f] = new + rest
                    break
            elif f == old:
                moves[f] = new
                break
    return {a: b for a, b in moves.items() if a != b}


def module_name(path):
    base = os.path.basename(path)
    if base == "mod.rs" or base == "main.rs":
        return os.path.basename(os.path.dirname(path))
    return base[:-3]


def stage_files(tree, dry):
    from names_files import FILES

    moves = moves_of(tree, FILES)
    for old, new in moves.items():
        if new in set(files_of(tree)) and new not in moves:
            sys.exit(f"{old}: {new} is there already")
    targets = collections.Counter(moves.values())
    for new, n in targets.items():
        if n > 1:
            sys.exit(f"{n} files would become {new}")

    def plan(e):
        if e.kind == "mod" and getattr(e, "target", None) in moves:
            if e.name == module_name(e.target):
                return module_name(moves[e.target])
        # Shares its module's name, and is imported with it in one word.
        if e.kind == "fn" and e.name == "perform" and e.file in ("jobs/src/perform.rs", "jobs/src/execute.rs"):
            return "execute"
        return None

    count, _ = rename_entities(tree, plan, dry)
    count += path_texts(tree, moves, dry)
    if not dry:
        for old, new in moves.items():
            os.makedirs(os.path.join(tree, os.path.dirname(new)), exist_ok=True)
            git(tree, "mv", old, new)
        relative_paths(tree, moves)
    print(f"files: {len(moves)} moved, {count} places changed")


def path_texts(tree, moves, dry):
    """Paths of files as they are written in code, comments, documents and scripts."""
    count = 0
    if not moves:
        return 0
    exact, short, folders = {}, {}, {}
    for old, new in moves.items():
        exact[old] = new
        o, n = old.split("/"), new.split("/")
        # `ledger/runs.rs`, `ledger/runs`
        for k in (2, 3):
            if len(o) > k:
                short.setdefault("/".join(o[-k:]), set()).add("/".join(n[-(k + len(n) - len(o)):]))
        if len(o) > 2 and o[-1].endswith(".rs") and o[-1] != "mod.rs":
            short.setdefault("/".join(o[-2:])[:-3], set()).add("/".join(n[-2:])[:-3].replace("/mod", ""))
        if o[-2] != n[-2]:
            folders.setdefault("/".join(o[:-1]) + "/", set()).add("/".join(n[:-1]) + "/")
            if "/".join(o[1:-1]):
                folders.setdefault("/".join(o[1:-1]) + "/", set()).add("/".join(n[1:-1]) + "/")
            folders.setdefault(o[-2] + "/", set()).add(n[-2] + "/")
    # Bare names of files that are said nowhere else.
    names = collections.Counter(os.path.basename(f) for f in files_of(tree))
    bare = {}
    for old, new in moves.items():
        o, n = os.path.basename(old), os.path.basename(new)
        if o != n and names[o] == 1 and o != "mod.rs" and n != "mod.rs":
            bare[o] = n
    pairs = [(o, n) for o, n in exact.items()]
    pairs += [(o, next(iter(ns))) for o, ns in short.items() if len(ns) == 1]
    pairs.sort(key=lambda p: -len(p[0]))
    known = {}
    for o, n in pairs:
        known.setdefault(o, n)
    for o, ns in folders.items():
        if len(ns) == 1 and o not in ("src/", "tests/", "place/", "setting/", "dry/"):
            known.setdefault(o, next(iter(ns)))
    known.update({o: n for o, n in bare.items() if o not in known})
    alts = sorted(known, key=lambda s: -len(s))
    # A bare name stands alone; the contract's `dreams/ledger.md` is no file of ours.
    alone = [a for a in alts if "/" not in a]
    paths = [a for a in alts if "/" in a]
    pattern = re.compile(
        r"(?<![\w.\-])(?:" + "|".join(re.escape(a) for a in paths) + r")(?![\w\-]|\.[a-z])"
        r"|(?<![\w.\-/])(?:" + ("|".join(re.escape(a) for a in alone if not a.endswith(".md")) or "(?!)") + r")(?![\w\-]|\.[a-z])"
        + r"|(?<=\]\()(?:" + ("|".join(re.escape(a) for a in alone if a.endswith(".md")) or "(?!)") + r")(?=[)#])"
    )
    for f in texts_of(tree):
        text = read(tree, f)
        if f.startswith("config/schemas") or f.startswith("tests/snapshots"):
            continue
        if f.endswith(".rs"):
            # Only in comments, `#[path]` and `include_str!`: other texts are data.
            out, at = [], 0
            toks = lex(text)
            for i, t in enumerate(toks):
                if t.k == "com":
                    new = pattern.sub(lambda m: known[m.group(0)], t.t)
                else:
                    continue
                if new != t.t:
                    out.append(text[at:t.a] + new)
                    at = t.b
                    count += 1
            new = "".join(out) + text[at:]
        else:
            new, k = pattern.subn(lambda m: known[m.group(0)], text)
            count += k
        if new != text and not dry:
            write(tree, f, new)
    return count


def relative_paths(tree, moves):
    """`#[path]` and `include_*!` of files that moved, or that name files that did."""
    back = {new: old for old, new in moves.items()}
    literal = re.compile(r'(#\[path = "|include_(?:str|bytes)!\(\s*(?:concat!\(\s*)?")([^"]+)(")')
    for f in files_of(tree):
        if not f.endswith(".rs"):
            continue
        text = read(tree, f)
        was = back.get(f, f)

        def fix(m):
            rel = m.group(2)
            target = os.path.normpath(os.path.join(os.path.dirname(was), rel))
            target = moves.get(target, target)
            if rel.endswith("/"):
                target += "/"
            new = os.path.relpath(target, os.path.dirname(f))
            if rel.endswith("/"):
                new += "/"
            return m.group(1) + new + m.group(3)

        new = literal.sub(fix, text)
        if new != text:
            write(tree, f, new)


# Stage: types


def stage_types(tree, dry):
    from names_types import table

    rows = table()
    used = set()

    def plan(e):
        if e.kind == "type" and (e.file, e.name) in rows:
            used.add((e.file, e.name))
            return rows[(e.file, e.name)]
        return None

    count, _ = rename_entities(tree, plan, dry)
    for row in rows:
        if row not in used and not any(row[0] == f and rows[row] for f, _ in used):
            pass
    print(f"types: {len(used)} of {len(rows)} renamed, {count} places changed")
    for f, old in sorted(set(rows) - used):
        if os.path.exists(os.path.join(tree, f)):
            print(f"  not there any more: {f} {old}")


def stage_commands(tree, dry):
    import names_commands

    count = names_commands.apply(tree, texts_of, read, write, dry)
    print(f"commands: {count} places changed")


# Stage: functions


def below(file, folders):
    return not folders or any(file.startswith(f) for f in folders)


def stage_functions(tree, dry):
    from names_functions import FREE, IDENTS, METHODS

    rows = {}
    for line in FREE.split("\n"):
        if line.strip():
            f, old, new = line.split()
            rows[(f, old)] = new
    used = set()

    def plan(e):
        if e.kind == "fn" and (e.file, e.name) in rows:
            used.add((e.file, e.name))
            return rows[(e.file, e.name)]
        return None

    count, _ = rename_entities(tree, plan, dry)
    print(f"functions: {len(used)} of {len(rows)} free functions renamed, {count} places changed")
    for f, old in sorted(set(rows) - used):
        if os.path.exists(os.path.join(tree, f)):
            print(f"  not there any more: {f} {old}")
    print(f"functions: {methods(tree, METHODS, dry)} places of methods changed")
    print(f"functions: {idents(tree, IDENTS, dry)} places of identifiers changed")


def methods(tree_dir, table, dry):
    tree = Tree(tree_dir)
    edits = Edits(tree_dir)
    for file, toks, module in tree.parsed:
        names = {}
        for old, new, folders in table:
            if below(file, folders) and old not in names:
                names[old] = new
        code = [t for t in toks if t.k != "com"]
        for i, t in enumerate(code):
            if t.k != "id" or t.t not in names:
                continue
            prev = code[i - 1].t if i else ""
            after = code[i + 1].t if i + 1 < len(code) else ""
            new = names[t.t]
            if isinstance(t.decl, Entity) and t.decl.kind == "method":
                edits.add(file, t.a, t.b, new)
            elif prev == "." and (after == "(" or after == "::"):
                edits.add(file, t.a, t.b, new)
            elif prev == "::" and i >= 2 and (code[i - 2].t[:1].isupper() or code[i - 2].t == ">"):
                edits.add(file, t.a, t.b, new)
        for t in toks:
            if t.k == "com":
                for m in re.finditer(r"(?<=\b)([A-Z]\w*)::([a-z_]\w*)\b", t.t):
                    if m.group(2) in names:
                        edits.add(file, t.a + m.start(2), t.a + m.end(2), names[m.group(2)])
    return edits.write(dry)


def fn_spans(code):
    """Token ranges of functions: (first, last), outermost ones."""
    spans, i, n = [], 0, len(code)
    while i < n:
        if code[i].t == "fn" and i + 1 < n and code[i + 1].k == "id":
            j, depth = i, 0
            while j < n:
                if code[j].t in ("{",):
                    depth += 1
                elif code[j].t == "}":
                    depth -= 1
                    if depth == 0:
                        break
                elif code[j].t == ";" and depth == 0:
                    # inside `[u8; 4]` of a signature there may be one
                    k = j
                    opened = sum(1 if c.t == "[" else -1 if c.t == "]" else 0 for c in code[i:k])
                    if opened == 0:
                        break
                j += 1
            spans.append((i, j))
            i = j
        i += 1
    return spans


def idents(tree_dir, table, dry):
    tree = Tree(tree_dir)
    edits = Edits(tree_dir)
    for file, toks, module in tree.parsed:
        names = {}
        for old, new, folders in table:
            if below(file, folders):
                names.setdefault(old, new)
        code = [t for t in toks if t.k != "com"]
        local = {}
        for first, last in fn_spans(code):
            here = collections.Counter()
            for k in range(first, min(last + 1, len(code))):
                t = code[k]
                if t.k == "id" and (k == 0 or code[k - 1].t != ".") and (k + 1 >= len(code) or code[k + 1].t not in ("::", "(", "!")):
                    here[t.t] += 1
            for old, new in names.items():
                if here[old] and here[new]:
                    print(f"warning: {file}: {code[first + 1].t}: {old} and {new} are both there")
        body = None
        serde = serde_fields(code)
        for i, t in enumerate(code):
            if t.k == "str":
                for m in re.finditer(r"\{(\w+)([:}.])", t.t):
                    before = t.t[: m.start()]
                    if before.endswith("{") and not before.endswith("{{{"):
                        continue
                    if m.group(1) in names:
                        edits.add(file, t.a + m.start(1), t.a + m.end(1), names[m.group(1)])
                continue
            if t.k != "id" or t.t not in names:
                continue
            if i in serde:
                at = serde[i]
                edits.add(file, t.a, t.b, names[t.t])
                edits.add(file, at, at, f'#[serde(rename = "{t.t}")]\n    ')
                continue
            edits.add(file, t.a, t.b, names[t.t])
    return edits.write(dry)


def serde_fields(code):
    """Fields of structs that derive Serialize or Deserialize: token index -> where an attribute goes."""
    out = {}
    i, n = 0, len(code)
    while i < n:
        if code[i].t in ("struct", "enum") and i + 1 < n and code[i + 1].k == "id":
            k = i
            derives = False
            while k > 0 and code[k].t not in (";", "}", "{"):
                if code[k].t in ("Serialize", "Deserialize"):
                    derives = True
                k -= 1
            if not derives:
                i += 1
                continue
            j, depth = i, 0
            while j < n and not (code[j].t == ";" and depth == 0):
                if code[j].t == "{":
                    depth += 1
                elif code[j].t == "}":
                    depth -= 1
                    if depth == 0:
                        break
                elif depth and code[j].k == "id" and j + 1 < n and code[j + 1].t == ":" and code[j - 1].t in ("{", ",", "]", "pub", ")"):
                    s = j
                    while code[s - 1].t not in ("{", ",", "]"):
                        s -= 1
                    renamed = False
                    r = s
                    while code[r - 1].t == "]":
                        while code[r].t != "#":
                            if code[r].t == "rename":
                                renamed = True
                            r -= 1
                    if not renamed:
                        out[j] = code[s].a
                j += 1
            i = j
        i += 1
    return out


def stage_words(tree, dry):
    import names_words

    print(f"words: {names_words.apply(tree, texts_of, read, write, dry, lex)} texts changed")


STAGES = {
    "files": stage_files,
    "types": stage_types,
    "commands": stage_commands,
    "functions": stage_functions,
    "words": stage_words,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree")
    parser.add_argument("--stage", default="all", choices=list(STAGES) + ["all"])
    parser.add_argument("--dry", action="store_true")
    args = parser.parse_args()
    for name in STAGES if args.stage == "all" else [args.stage]:
        STAGES[name](args.tree, args.dry)


if __name__ == "__main__":
    main()
