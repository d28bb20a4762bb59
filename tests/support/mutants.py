"""Mechanical mutants of the specification, run against the check cells of its chapters.

    python tests/support/mutants.py [CHAPTER …]      measure what changed since the last time, then write the table
    python tests/support/mutants.py --table          only write the table

A mutant is one function of `tlm_book.spec` with one small change. The chapter runs once; where a function is first called the process
forks, the child gives the function the mutant's code and goes on through the check cells that the function reaches, and through the
cells that these need. A check cell that fails, or that takes far longer than it should, has caught the mutant.
"""

import ast
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import chapters as book
import yaml
from mutating import CAP, Mutant, all_mutants, drawn, functions
from mutations import code_cells, run_cell

RESULTS = Path(__file__).with_name("mutants.json")
REASONS = Path(__file__).with_name("mutants_equivalent.yml")
PAGE = book.BOOK / "mutation_testing.md"


class Names(ast.NodeVisitor):
    """The names that a cell reads from cells before it, and those that it writes."""

    def __init__(self, source: str) -> None:
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.imported: set[str] = set()
        self.visit(ast.parse("\n".join(line for line in source.splitlines() if not line.lstrip().startswith("%"))))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.writes.add(node.id)
        elif node.id not in self.writes:
            self.reads.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.touches(target)
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.reads.add(node.target.id)
        self.touches(node.target)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            self.touches(node.value.func)
        self.generic_visit(node)

    def touches(self, target: ast.expr) -> None:
        """a.b = …, a[b] = … and a.b(…) as a statement change what a names."""
        base = target
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        if base is not target and isinstance(base, ast.Name):
            self.reads.add(base.id)
            self.writes.add(base.id)

    def inside(self, parts: list[ast.AST], own: set[str] = frozenset()) -> None:
        """A scope of its own, in which the names `own` are bound."""
        inner = Names("")
        for part in parts:
            inner.visit(part)
        self.reads |= inner.reads - self.writes - own

    def definition(self, node: ast.FunctionDef | ast.ClassDef | ast.Lambda) -> None:
        if not isinstance(node, ast.Lambda):
            self.writes.add(node.name)
            for part in node.decorator_list:
                self.visit(part)
        if isinstance(node, ast.ClassDef):
            return self.inside([*node.bases, *node.body])
        for part in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(part)
        own = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
        return self.inside([node.body] if isinstance(node, ast.Lambda) else node.body, own)

    visit_FunctionDef = visit_ClassDef = visit_Lambda = definition

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        order = [part for generator in node.generators for part in (generator.iter, generator.target, *generator.ifs)]
        self.inside(order + results)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = comprehension

    def visit_For(self, node: ast.For) -> None:
        for part in (node.iter, node.target, *node.body, *node.orelse):
            self.visit(part)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        names = {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        self.writes |= names
        if not (getattr(node, "module", "") or "").startswith("tlm_book.spec"):
            self.imported |= names

    visit_ImportFrom = visit_Import


class Chapter:
    """The code cells of one chapter, which functions of its specification each calls, and how long each takes."""

    patience = 10.0  # a check may take so many seconds more, and so many times longer, than without a mutant

    def __init__(self, name: str, cells: list[str], functions: dict[str, str]) -> None:
        self.name, self.cells, self.functions = name, cells, functions
        self.names = [Names(cell) for cell in cells]
        directives = [book.directives(cell) for cell in cells]
        self.checks = {n: found["checks"].split() for n, found in enumerate(directives) if "checks" in found}
        self.exports = {n for n, found in enumerate(directives) if "export" in found}
        self.defines = {n for n, found in enumerate(directives) if found.get("export") == f"spec.{name}"}
        self.useful = self.needed(self.touched(self.defines | {n for n, cell in enumerate(cells) if "tlm_book.spec" in cell}))
        self.space: dict[str, object] = {"__name__": "__main__", "display": lambda *things: None}
        self.known: dict[str, Callable[..., object]] = {}
        self.reached: list[set[str]] = []
        self.seconds: list[float] = []

    def run(self, number: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            run_cell(number, self.cells[number], self.space)
        if number in self.defines:
            for name in self.functions:
                if name.split(".")[0] in self.names[number].writes:
                    self.known[name] = look_up(self.space, name)

    def objects(self, name: str) -> list[Callable[..., object]]:
        """The function that a cell has defined, and the same in the package, which later chapters' modules use."""
        module = vars(sys.modules.get(f"tlm_book.spec.{self.name}", object))
        return [found for found in (self.known.get(name), look_up(module, name)) if found]

    def rehearse(self) -> None:
        """One run of the checks and of what they need, in a child and without a mutant: fills `reached` and `seconds`."""
        answer = in_a_child(self._rehearse)
        if isinstance(answer, str):
            raise SystemExit(f"{self.name}: the checks fail without a mutant")
        self.reached, self.seconds = answer

    def _rehearse(self) -> tuple[list[set[str]], list[float]]:
        seen: set[str] = set()

        def watch(frame, event, _):
            if event == "call" and frame.f_code in codes:
                seen.add(codes[frame.f_code])

        for number in range(len(self.cells)):
            codes = {f.__code__: name for name in self.functions for f in self.objects(name)}
            seen.clear()
            begin = time.perf_counter()
            sys.setprofile(watch)
            try:
                if number in self.useful:
                    self.run(number)
            finally:
                sys.setprofile(None)
            self.seconds.append(time.perf_counter() - begin)
            self.reached.append(set(seen))
        return self.reached, self.seconds

    def needed(self, checks: Iterable[int]) -> set[int]:
        """These cells, those whose names they use, and so on back; exports always, for they may register what they define."""
        needed, wanted = set(checks), set()
        for number in reversed(range(len(self.cells))):
            if number in needed or number in self.exports or self.names[number].writes & wanted:
                needed.add(number)
                wanted |= self.names[number].reads
        return needed

    def touched(self, origins: set[int]) -> list[int]:
        """The checks among these cells and among those that use, directly or not, a name that one of these has written."""
        tainted, checks = set(), []
        imported = {name for names in self.names for name in names.imported} - {name.split(".")[0] for name in self.functions}
        for number, names in enumerate(self.names):
            if number in origins or names.reads & tainted:
                tainted |= names.writes - imported
                checks += [number] * (number in self.checks)
            else:
                tainted -= names.writes
        return checks

    def plan(self, function: str) -> list[int]:
        """The cells that a mutant of this function must run: the checks that it reaches and the cells which those need."""
        defined = max((number for number in self.defines if function.split(".")[0] in self.names[number].writes), default=-1)
        origins = {number for number, reached in enumerate(self.reached) if function in reached and number > defined}  # what ran before would be defined anew
        first = min(origins, default=len(self.cells))
        return sorted(number for number in self.needed(self.touched(origins)) if number >= first)

    def outcome(self, plan: list[int], mutant: Mutant) -> str:
        """What caught the mutant; "" when nothing did. Runs in a child."""
        bound_memory(2**31)
        for function in self.objects(mutant.function):
            put(function, mutant)
        failed = False
        for number in plan:
            signal.setitimer(signal.ITIMER_REAL, self.patience * (1 + self.seconds[number]))
            try:
                run_cell(number, self.cells[number], self.space)
            except BaseException as error:
                if number in self.checks and not (failed and type(error) is NameError):
                    return f"{type(error).__name__} {self.checks[number][0]}"
                failed = True
        return ""

    def measure(self, wanted: dict[str, list[Mutant]]) -> dict[str, list[str]]:
        """For each function, what became of its mutants."""
        plans = {name: self.plan(name) for name in wanted}
        results: dict[str, list[str]] = {name: [""] * len(mutants) for name, mutants in wanted.items()}
        for number in range(len(self.cells)):
            for name, plan in plans.items():
                if plan and plan[0] == number:
                    begin = time.perf_counter()
                    results[name] = [in_a_child(lambda: self.outcome(plan, mutant)) for mutant in wanted[name]]
                    caught, seconds = sum(map(bool, results[name])), time.perf_counter() - begin
                    print(f"{self.name}.{name}: {caught} of {len(results[name])} caught in {seconds:.0f} s", flush=True)
            if number in self.useful and any(plan and plan[0] > number for plan in plans.values()):
                self.run(number)
        return results


def look_up(space: Mapping[str, object], name: str) -> Callable[..., object] | None:
    """The function of that name, also a method, without its decorators; None where there is none."""
    first, *rest = name.split(".")
    found = space.get(first)
    for part in rest:
        found = vars(found).get(part) if found is not None else None
    return inspect.unwrap(found) if hasattr(found, "__code__") else None


def put(function: Callable[..., object], mutant: Mutant) -> None:
    """Give a function that lives on in many places the mutant's code and default values."""
    made: dict[str, object] = {}
    exec(compile(mutant.source, "<mutant>", "exec"), dict(function.__globals__), made)
    new = inspect.unwrap(made[mutant.function.split(".")[-1]])
    function.__code__, function.__defaults__, function.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def bound_memory(more: int) -> None:
    """An endless loop must not bring the machine down. (Where the system does not say how much memory there is, nothing is bounded.)"""
    statm = Path("/proc/self/statm")
    if statm.exists():
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.getrlimit(resource.RLIMIT_AS)[1]))


def in_a_child(work, quiet=True):
    """What work() returns, from a child that may die; "time" from a child that ran out of it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        stderr = os.dup(2)
        if quiet:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
        try:
            answer = pickle.dumps(work())
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(answer)
        except BaseException as error:
            os.write(stderr, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer:
        return pickle.loads(answer)
    return "time" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else "crash"


# Results, kept and shown

def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def read_json(path: Path, empty: object) -> object:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty


def write_json(path: Path, content: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(part, path)


def record(function: str, source: str, checks: str, outcomes: list[tuple[Mutant, str]]) -> dict[str, object]:
    caught: dict[str, int] = {}
    by: dict[str, int] = {}
    for mutant, outcome in outcomes:
        if outcome:
            caught[mutant.kind] = caught.get(mutant.kind, 0) + 1
            how = {"AssertionError": "assertion", "time": "time"}.get(outcome.split()[0], "error")
            by[how] = by.get(how, 0) + 1
    survivors = [[m.kind, m.was, m.becomes] for m, outcome in outcomes if not outcome]
    possible = len(all_mutants(function, source))
    return {"source": digest(source), "checks": checks, "possible": possible, "caught": caught, "by": by, "survivors": survivors}


def measure_chapter(name: str, old: dict[str, dict]) -> dict[str, dict]:
    """The records of one chapter's functions; those of which nothing has changed are taken over."""
    importlib.import_module(f"tlm_book.spec.{name}")
    chapter = Chapter(name, code_cells(name), functions(name))
    checks = digest(*(chapter.cells[number] for number in chapter.checks))
    new, wanted, chosen, why = {}, {}, {}, reasons()
    for function, source in chapter.functions.items():
        before = old.get(function, {})
        if (before.get("source"), before.get("checks")) == (digest(source), checks):
            new[function] = before
        else:
            chosen[function] = drawn(all_mutants(function, source))
            # a change that survived before, and for a reason, is not tried again until the function changes
            same = [tuple(found) for found in before.get("survivors", []) if before["source"] == digest(source) and (name, function, *found[1:]) in why]
            wanted[function] = [mutant for mutant in chosen[function] if mutant[1:4] not in same]
    if wanted:
        chapter.rehearse()
        for function, outcomes in chapter.measure(wanted).items():
            outcome = dict(zip(wanted[function], outcomes))
            new[function] = record(function, chapter.functions[function], checks, [(mutant, outcome.get(mutant, "")) for mutant in chosen[function]])
    return new


def reasons() -> dict[tuple[str, str, str, str], str]:
    """{(chapter, function, was, becomes): why this mutant computes the same}."""
    entries = yaml.safe_load(REASONS.read_text(encoding="utf-8")) or []
    return {(e["chapter"], e["function"], was, becomes): e["why"] for e in entries for was, becomes in e["changes"]}


def survivors(results: dict) -> list[tuple[str, str, str, str]]:
    return [(chapter, name, was, becomes) for chapter, found in results.items() for name, one in found.items()
            for _, was, becomes in one["survivors"]]


def row(*fields: object) -> str:
    return "| " + " | ".join(map(str, fields)) + " |"


def code(text: str) -> str:
    """As code in a cell of a table."""
    return "`" + text.replace("|", "\\|") + "`"


def shortened(was: str, becomes: str, room: int = 44) -> tuple[str, str]:
    """Two lines of code cut down to the place where they differ, between words."""
    def alike(a: str, b: str) -> int:
        return next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))

    start = alike(was, becomes)
    end = alike(was[start:][::-1], becomes[start:][::-1])
    left, right = max(0, start - room), max(0, end - room)
    while 0 < left and ("_" + was[left - 1] + was[left]).isidentifier():  # no word is cut
        left -= 1
    while 0 < right and ("_" + was[-right - 1] + was[-right]).isidentifier():
        right -= 1

    def cut(text: str) -> str:
        return "… " * (left > 0) + text[left : len(text) - right].strip() + " …" * (right > 0)

    return cut(was), cut(becomes)


INTRODUCTION = """# Checks that can fail

A check that nothing can break checks nothing. So the specification was broken on purpose, one small change at a time, and each chapter's own check cells were run on what came out. Of {possible} possible changes {run} were tried: {caught} were noticed, {same} change nothing that could be noticed, and {left} survived.

Each function in `tlm_book.spec` was given **mutants** (mutation testing): copies with one change to the formula. A sign is turned, an index moved by one, an operand transposed,
a factor or a term dropped, `<` put for `≤`, an axis exchanged, a maximum put for a minimum, a mask or a normalization left out, two arguments exchanged. A mutant is *caught* when a check cell of
its own chapter fails on it: an assertion that does not hold, an error, or a run that takes longer than ten seconds and ten times the unchanged one. Other chapters, exercises and tests do not count here.

Not changed: the statements that refuse bad input and do nothing else (they have tests of their own), documentation, types, and the tables and constants outside functions.
Where a function has more than {cap} mutants, {cap} are drawn with a fixed seed, as many of each kind as possible. In the first table *possible* counts them all, and *run* those that are drawn.

A mutant may compute the same as the original: it is *equivalent*, and nothing can catch it. Each of those is listed below with the reason.
The command `make mutants` measures what has changed since the last time and writes this page.
"""

KINDS = """A *name* is a string that chooses a case, replaced by another of the function; a *range* is given another first or last number; a *condition* is negated, loses a part,
or has `and` for `or`."""
CALLED = {
    "multi_head": "multi-head attention", "feed_forward": "feed-forward", "transformer_lm": "language model", "encoder_decoder": "encoder–decoder",
}  # fmt: skip


def page(results: dict, why: dict) -> str:
    """The page of the appendix."""
    order = [name for name in book.chapters() if name in results]
    lines = ["## By chapter", "",
             row("chapter", "functions", "possible", "run", "caught", "by assertion", "by error", "by time", "equivalent", "survived"),
             row("---", *["---:"] * 9)]
    sums, kinds = [0] * 9, {}
    for name in order:
        found = results[name]
        same = [key for key in survivors({name: found}) if key in why]
        by = [sum(one["by"].get(how, 0) for one in found.values()) for how in ("assertion", "error", "time")]
        left = len(survivors({name: found}))
        numbers = [len(found), sum(one["possible"] for one in found.values()), sum(by) + left, sum(by), *by, len(same), left - len(same)]
        sums = [a + b for a, b in zip(sums, numbers)]
        lines.append(row(f"[{CALLED.get(name, name.replace('_', ' '))}]({name}.ipynb)", *numbers))
        for function, one in found.items():
            for kind, count in one["caught"].items():
                kinds.setdefault(kind, [0, 0, 0])[0] += count
            for kind, was, becomes in one["survivors"]:
                kinds.setdefault(kind, [0, 0, 0])[1 if (name, function, was, becomes) in why else 2] += 1
    lines.append(row("**all**", *sums))
    lines += ["", "## By kind of change", "", KINDS, "", row("change", "run", "caught", "equivalent", "survived"), row("---", *["---:"] * 4)]
    for kind, (caught, same, left) in sorted(kinds.items()):
        lines.append(row(kind, caught + same + left, caught, same, left))
    without = [name for name in book.chapters() if functions(name) and name not in results]
    if without:
        lines += ["", f"Not measured yet: {', '.join(without)}."]
    rest = [key for key in survivors(results) if key not in why]
    lines += ["", "## Not caught", ""]
    lines += [changed_table(rest)] if rest else ["None."]
    lines += ["", "## Equivalent", ""]
    texts: dict[str, list] = {}
    for key in survivors(results):
        if key in why:
            texts.setdefault(why[key], []).append(key)
    for text, keys in texts.items():
        lines += [text, "", changed_table(keys), ""]
    _, possible, run, caught, *_, same, left = sums
    head = INTRODUCTION.format(cap=CAP, possible=possible, run=run, caught=caught, same=same, left=left or "none")
    return "\n".join([head, *lines]).rstrip() + "\n"


def changed_table(keys: list[tuple[str, str, str, str]]) -> str:
    lines = [row("function", "instead of", "stands"), row("---", "---", "---")]
    for chapter, function, was, becomes in keys:
        lines.append(row(code(f"{chapter}.{function}"), *map(code, shortened(was, becomes))))
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] != ["--table"]:
        measure_chapters(book.chosen(sys.argv[1:], book.chapters()))
    PAGE.write_text(page(read_json(RESULTS, {}), reasons()), encoding="utf-8")
    print("wrote", PAGE.relative_to(book.ROOT))


def measure_chapters(names: list[str]) -> None:
    import matplotlib
    import networkx  # noqa: F401  once for all chapters
    import torch

    matplotlib.use("Agg")
    torch.set_num_threads(1)
    os.environ.pop("TLM_BOOK_TYPECHECK", None)  # a mutant must be caught by a check, not by a type
    os.chdir(book.BOOK)
    for name in names:
        if functions(name):
            results = read_json(RESULTS, {})
            found = in_a_child(lambda: measure_chapter(name, results.get(name, {})), quiet=False)
            if not isinstance(found, dict):
                print(f"{name}: not measured", flush=True)
                continue
            write_json(RESULTS, read_json(RESULTS, {}) | {name: found})
            why = reasons()
            for key in survivors({name: found}):
                if key not in why:
                    print(f"{name}.{key[1]}\n    - {key[2]}\n    + {key[3]}", flush=True)


if __name__ == "__main__":
    main()
