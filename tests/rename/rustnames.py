"""A small reader of Rust: tokens, scopes and the paths that name items.

It resolves what a path names (module, type, function, constant) through `use`, `pub use`, globs,
`self`, `super`, `crate`, `#[path]` and nested scopes. It knows no types of expressions, so methods and
fields are renamed by word, elsewhere.
"""
import os
import re

TOKEN = re.compile(
    r"""(?P<ws>\s+)
    |(?P<lc>//[^\n]*)
    |(?P<bc>/\*)
    |(?P<raw>(?:b|c)?r(?P<h>\#*)")
    |(?P<str>(?:b|c)?"(?:[^"\\]|\\.)*")
    |(?P<chr>b?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.))')
    |(?P<life>'[A-Za-z_]\w*)
    |(?P<id>(?:r\#)?[A-Za-z_]\w*)
    |(?P<num>\d(?:[\w]|\.(?=\d))*)
    |(?P<p>::|->|=>|\.\.=|\.\.\.|\.\.|.)""",
    re.X | re.S,
)
KEYWORDS = set(
    "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move "
    "mut pub ref return self Self static struct super trait true type union unsafe use where while".split()
)


class Tok:
    __slots__ = ("k", "t", "a", "b", "scope", "decl")

    def __init__(self, k, t, a, b):
        self.k, self.t, self.a, self.b = k, t, a, b
        self.scope = None
        self.decl = None


def lex(text):
    out, i, n = [], 0, len(text)
    while i < n:
        m = TOKEN.match(text, i)
        k = m.lastgroup
        if k == "h":
            k = "raw"
        j = m.end()
        if k == "bc":
            depth = 1
            while depth and j < n:
                o, c = text.find("/*", j), text.find("*/", j)
                if c < 0:
                    j = n
                    break
                if 0 <= o < c:
                    depth, j = depth + 1, o + 2
                else:
                    depth, j = depth - 1, c + 2
        elif m.group("raw"):
            k = "str"
            end = '"' + (m.group("h") or "")
            e = text.find(end, j)
            j = n if e < 0 else e + len(end)
        if k != "ws":
            kind = {"lc": "com", "bc": "com"}.get(k, k)
            out.append(Tok(kind, text[i:j], i, j))
        i = j
    return out


class Entity:
    def __init__(self, kind, name, file, at, module=None):
        self.kind, self.name, self.file, self.at, self.module = kind, name, file, at, module
        self.scope = None

    @property
    def key(self):
        return (self.kind, self.file, self.name, self.at)

    def __repr__(self):
        return f"{self.kind} {self.name} ({self.file})"


class Scope:
    def __init__(self, kind, parent, module, file):
        self.kind, self.parent, self.module, self.file = kind, parent, module, file
        self.types, self.values, self.imports = {}, {}, []
        self.owner = None


class Module:
    def __init__(self, crate, path, file, parent, directory):
        self.crate, self.path, self.file, self.parent = crate, path, file, parent
        self.directory = directory  # where its child modules' files lie
        self.scope = Scope("mod", None, self, file)
        self.entity = None


class Leaf:
    __slots__ = ("path", "alias", "glob", "scope")

    def __init__(self, path, alias, glob, scope):
        self.path, self.alias, self.glob, self.scope = path, alias, glob, scope


class Tree:
    """All crates of the workspace."""

    def __init__(self, root):
        self.root = root
        self.texts = {}
        self.crates = {}  # extern name -> Module
        self.parsed = []  # (file, toks, module)
        self.uses = []  # (file, Leaf)
        self.mods = []  # (file, tok of name, child module)
        for name, file in self.roots():
            if os.path.exists(os.path.join(root, file)):
                m = Module(name, [], file, None, os.path.dirname(file))
                m.entity = Entity("mod", name, file, -1, m)
                if not name.startswith("@"):
                    self.crates[name] = m
                m.root = m
                self.parse_file(file, m)

    def roots(self):
        yield "runner_text", "text/src/lib.rs"
        yield "runner_engine", "engine/src/lib.rs"
        yield "runner_backends", "backends/src/lib.rs"
        for extra in ("memory", "fleet"):
            yield f"runner_{extra}", f"{extra}/src/lib.rs"
        yield "runner_jobs", "jobs/src/lib.rs"
        yield "@runner", "src/main.rs"
        seen = set()
        for base in ("", "text/", "engine/", "backends/", "jobs/", "memory/", "fleet/"):
            for kind in ("tests", "examples", "benches"):
                folder = os.path.join(self.root, base + kind)
                if not os.path.isdir(folder):
                    continue
                for entry in sorted(os.listdir(folder)):
                    f = f"{base}{kind}/{entry}"
                    if entry.endswith(".rs"):
                        seen.add(f)
                        yield "@" + f, f
                    elif os.path.exists(os.path.join(self.root, f, "main.rs")):
                        yield "@" + f, f"{f}/main.rs"
        yield "@hostile", "tests/fakes/agent/main.rs"
        fuzz = os.path.join(self.root, "fuzz/fuzz_targets")
        if os.path.isdir(fuzz):
            for entry in sorted(os.listdir(fuzz)):
                if entry.endswith(".rs"):
                    yield "@fuzz/" + entry, f"fuzz/fuzz_targets/{entry}"
        if os.path.exists(os.path.join(self.root, "fuzz/program.rs")):
            yield "@fuzzprog", "fuzz/program.rs"

    def text(self, file):
        if file not in self.texts:
            with open(os.path.join(self.root, file), encoding="utf-8") as f:
                self.texts[file] = f.read()
        return self.texts[file]

    def parse_file(self, file, module):
        toks = lex(self.text(file))
        self.parsed.append((file, toks, module))
        self.read(file, toks, module)

    def child_file(self, parent, name, path_attr, file, inline_dirs):
        here = os.path.dirname(file)
        if path_attr is not None:
            return os.path.normpath(os.path.join(here, *inline_dirs, path_attr))
        base = os.path.join(parent.directory, name)
        for cand in (base + ".rs", os.path.join(base, "mod.rs")):
            if os.path.exists(os.path.join(self.root, cand)):
                return cand
        return None

    def read(self, file, toks, module):
        code = [t for t in toks if t.k != "com"]
        ci = {id(t): n for n, t in enumerate(code)}
        stack = [module.scope]
        pending = None  # what the next `{` opens
        path_attr = None
        depth_paren = 0
        it = iter(range(len(toks)))
        skip_until = -1
        for t in toks:
            t.scope = stack[-1]
            if t.k == "com":
                continue
            i = ci[id(t)]
            prev = code[i - 1] if i else None
            nxt = code[i + 1] if i + 1 < len(code) else None
            if i < skip_until:
                continue
            scope = stack[-1]
            if t.k == "p":
                if t.t in "([":
                    depth_paren += 1
                elif t.t in ")]":
                    depth_paren -= 1
                if t.t == "{":
                    if pending and pending[0] == "mod":
                        new = pending[1].scope
                    else:
                        kind = pending[0] if pending else "block"
                        new = Scope(kind, scope, scope.module, file)
                        new.owner = pending[1] if pending else None
                    pending = None
                    new.parens = depth_paren
                    stack.append(new)
                elif t.t == "}":
                    if len(stack) > 1:
                        stack.pop()
                    t.scope = stack[-1]
                elif t.t == ";":
                    pending = None
                elif t.t == "#" and nxt and nxt.t == "[":
                    if i + 4 < len(code) and code[i + 2].t == "path" and code[i + 3].t == "=":
                        path_attr = code[i + 4].t.strip('"')
                continue
            if t.k != "id":
                continue
            w = t.t
            prevt = prev.t if prev else ";"
            if w == "derive" and prevt == "[" and nxt and nxt.t == "(":
                j = i + 2
                while j < len(code) and code[j].t != ")":
                    code[j].decl = "derive"
                    j += 1
            if (
                scope.kind == "body"
                and getattr(scope.owner, "what", "") == "enum"
                and prevt in ("{", ",", "]")
                and depth_paren == scope.parens
            ):
                t.decl = "variant"
                continue
            if w == "mod" and nxt and nxt.k == "id" and i + 2 < len(code) and prevt != "::":
                after = code[i + 2].t
                if after in (";", "{"):
                    name = nxt.t
                    m = scope.module
                    child = Module(m.crate, m.path + [name], file, m, os.path.join(m.directory, name))
                    child.root = m.root
                    nxt.decl = child.entity = Entity("mod", name, file, nxt.a, child)
                    child.entity.inline = after == "{"
                    if after == "{":
                        child.scope.file = file
                        pending = ("mod", child)
                    else:
                        dirs = []
                        cf = self.child_file(m, name, path_attr, file, dirs)
                        if cf is None or not os.path.exists(os.path.join(self.root, cf)):
                            child = None
                        else:
                            child.file = cf
                            child.scope.file = cf
                            child.entity.target = cf
                            base = os.path.basename(cf)
                            if path_attr is not None:
                                child.directory = os.path.dirname(cf)
                            elif base == "mod.rs":
                                child.directory = os.path.dirname(cf)
                            child.entity.by_path = path_attr is not None
                    path_attr = None
                    if child is not None:
                        scope.types[name] = child.entity
                        if after == ";":
                            self.parse_file(child.file, child)
                    continue
            if w == "use" and nxt and nxt.t != "<" and prevt not in (".", "::"):
                j = i + 1
                leaves = []
                end = self.use_tree(code, j, [], scope, leaves)
                for leaf in leaves:
                    scope.imports.append(leaf)
                    self.uses.append((file, leaf))
                skip_until = end
                for k in range(i, min(end, len(code))):
                    code[k].scope = scope
                    code[k].decl = code[k].decl or "use"
                continue
            if w == "impl" and prevt in (";", "}", "{", "]", "unsafe", "default"):
                pending = ("impl", None)
                continue
            if w in ("struct", "enum", "trait", "type", "union") and nxt and nxt.k == "id" and nxt.t not in KEYWORDS:
                if prevt in (".", "::", "let", "(", ",", "|", "&", "=", "r#"):
                    continue
                if w == "union" and prevt not in (";", "}", "{", "]", "pub", ")"):
                    continue
                e = Entity("type", nxt.t, file, nxt.a)
                e.what = w
                nxt.decl = e
                if scope.kind in ("mod", "fn", "block"):
                    scope.types[nxt.t] = e
                    if w == "struct":
                        scope.values[nxt.t] = e
                    e.scope = scope
                else:
                    nxt.decl = "assoc"
                if w != "type":
                    pending = ("trait" if w == "trait" else "body", e)
                continue
            if w == "fn" and nxt and nxt.k == "id":
                e = Entity("fn", nxt.t, file, nxt.a)
                nxt.decl = e
                if scope.kind in ("mod", "fn", "block"):
                    scope.values[nxt.t] = e
                    e.scope = scope
                else:
                    e.kind = "method"
                pending = ("fn", e)
                continue
            if w in ("const", "static") and nxt and nxt.k == "id" and i + 2 < len(code):
                name = nxt
                if name.t in ("mut", "ref") and i + 3 < len(code):
                    name = code[i + 2]
                if name.t in KEYWORDS or name.t == "_":
                    continue
                e = Entity("const", name.t, file, name.a)
                name.decl = e
                if scope.kind in ("mod", "fn", "block"):
                    scope.values[name.t] = e
                    e.scope = scope
                else:
                    e.kind = "assoc"
                continue

    def use_tree(self, code, i, prefix, scope, leaves):
        """Reads one use tree from token `i`; returns the index after it."""
        path = list(prefix)
        while i < len(code):
            t = code[i]
            if t.t == "::":
                if not path:
                    path.append(None)
                i += 1
            elif t.t == "{":
                i += 1
                while i < len(code) and code[i].t != "}":
                    if code[i].t == ",":
                        i += 1
                        continue
                    i = self.use_tree(code, i, path, scope, leaves)
                return i + 1
            elif t.t == "*":
                leaves.append(Leaf(path, None, True, scope))
                return i + 1
            elif t.t == "as":
                leaves.append(Leaf(path, code[i + 1].t, False, scope))
                return i + 2
            elif t.t in (",", "}", ";"):
                leaves.append(Leaf(path, None, False, scope))
                return i
            elif t.k == "id":
                path.append(t)
                i += 1
            else:
                return i + 1
        return i

    # Resolution

    def in_module(self, module, name, ns, seen):
        key = (id(module), name, ns)
        if key in seen:
            return None
        seen = seen | {key}
        return self.in_scope(module.scope, name, ns, seen)

    def in_scope(self, scope, name, ns, seen):
        found = (scope.types if ns == "t" else scope.values).get(name)
        if found:
            return found
        for leaf in scope.imports:
            if leaf.glob:
                continue
            last = leaf.path[-1]
            if last is None:
                continue
            bound = leaf.alias
            if bound is None:
                bound = last.t
                if bound == "self":
                    bound = leaf.path[-2].t if len(leaf.path) > 1 and leaf.path[-2] else None
            if bound == name:
                e = self.resolve([p.t if p else None for p in leaf.path], scope, ns, seen, leaf)
                if e:
                    return e
        for leaf in scope.imports:
            if leaf.glob:
                e = self.resolve([p.t if p else None for p in leaf.path], scope, "t", seen, leaf)
                if e and e.kind == "mod" and e.module:
                    r = self.in_module(e.module, name, ns, seen)
                    if r:
                        return r
        return None

    def first(self, name, scope, ns, seen, leaf=None):
        module = scope.module
        if name == "crate":
            return module.root.entity
        if name == "self":
            return module.entity
        if name == "super":
            return module.parent.entity if module.parent else None
        s = scope
        while s is not None:
            if s.kind in ("mod", "fn", "block"):
                key = (id(s), name, ns, "s")
                if key not in seen:
                    e = self.in_scope(s, name, ns, seen | {key, (id(s.module), name, ns)} if s.kind == "mod" else seen | {key})
                    if e:
                        return e
            if s.kind == "mod":
                break
            s = s.parent
        if ns == "t" and name in self.crates:
            return self.crates[name].entity
        return None

    def resolve(self, names, scope, ns, seen=frozenset(), leaf=None):
        es = self.resolve_all(names, scope, ns, seen, leaf)
        return es[-1] if es else None

    def resolve_all(self, names, scope, ns, seen=frozenset(), leaf=None):
        out, cur = [], None
        n = len(names)
        for i, name in enumerate(names):
            want = ns if i == n - 1 else "t"
            if i == 0:
                if name is None:
                    out.append(None)
                    continue
                cur = self.first(name, scope, want, seen, leaf)
            elif names[i - 1] is None and i == 1:
                cur = self.crates[name].entity if name in self.crates else None
            elif name == "self":
                pass
            elif name == "super":
                cur = cur.module.parent.entity if cur and cur.module and cur.module.parent else None
            elif cur is not None and cur.kind == "mod" and cur.module is not None:
                cur = self.in_module(cur.module, name, want, seen)
            else:
                cur = None
            out.append(cur)
        return out
