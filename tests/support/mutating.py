"""Mechanical mutants of a function: one small change of its formula each. tests/support/mutants.py runs them."""

import ast
import builtins
import copy
import random
from collections.abc import Iterator
from typing import NamedTuple

import chapters as book

CAP = 12  # mutants of one function; where there are more, as many of each kind as is possible, drawn with a fixed seed

SWAPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.FloorDiv,
           ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr}
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
PAIRS = ("max min", "maximum minimum", "sum mean", "all any", "sin cos", "triu tril", "argmax argmin", "zeros ones",
         "zeros_like ones_like", "vstack hstack", "exp expm1", "log log1p")
PARTNER = {a: b for pair in PAIRS for a, b in (pair.split(), pair.split()[::-1])}
PLUMBING = {"dtype", "otypes", "strict"}  # keywords that say nothing of the formula
SYMMETRIC = {"maximum", "minimum", "logaddexp", "max", "min", "agree", "allclose"}


class Mutant(NamedTuple):
    """`function` in which the statement that begins `was` begins `becomes`; `source` is the whole changed function."""

    function: str
    kind: str
    was: str
    becomes: str
    source: str


def called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def shifted(node: ast.expr, by: int) -> ast.expr:
    """node + by, with numbers added up."""
    match node:
        case ast.Constant(value=int(number)):
            return ast.Constant(number + by)
        case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int(number))):
            return with_(node, right=ast.Constant(number + by)) if number + by else node.left
    return ast.BinOp(node, ast.Add() if by > 0 else ast.Sub(), ast.Constant(abs(by)))


def transposed(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "T" else ast.Attribute(node, "T", ast.Load())


def with_(node: ast.AST, **fields: object) -> ast.AST:
    """A copy of the node in which these fields are others."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def without(items: list, index: int) -> list:
    return items[:index] + items[index + 1 :]


def of_operation(node: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.op, ast.MatMult):
        yield "transpose", with_(node, left=transposed(node.left))
        yield "transpose", with_(node, right=transposed(node.right))
    elif type(node.op) in SWAPPED:
        yield "sign" if isinstance(node.op, ast.Add | ast.Sub) else "operator", with_(node, op=SWAPPED[type(node.op)]())
    kind = "term dropped" if isinstance(node.op, ast.Add | ast.Sub) else "factor dropped"
    if isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow):
        yield kind, node.left
    if isinstance(node.op, ast.Add | ast.Mult):
        yield kind, node.right


def of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = called(node.func)
    if name in PARTNER and (isinstance(node.func, ast.Attribute) or hasattr(builtins, PARTNER[name])):
        func = with_(node.func, **{"attr" if isinstance(node.func, ast.Attribute) else "id": PARTNER[name]})
        yield "function", with_(node, func=func)
    library = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id in ("np", "math")
    own = isinstance(node.func, ast.Name) and not hasattr(builtins, name)
    if node.args and not isinstance(node.args[0], ast.Starred) and (own or library or name == "sorted"):
        yield "call dropped", node.args[0]
    if name == "copy":
        yield "call dropped", node.func.value
    if len(node.args) >= 2 and (own or library) and name not in SYMMETRIC and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        yield "arguments exchanged", with_(node, args=[node.args[1], node.args[0], *node.args[2:]])
    if own and len(node.args) >= 3:
        yield "argument dropped", with_(node, args=node.args[:-1])
    for index, keyword in enumerate(node.keywords):
        if keyword.arg not in PLUMBING:
            yield "argument dropped", with_(node, keywords=without(node.keywords, index))
    if name == "range":
        for by in (1, -1):
            yield "range", with_(node, args=[*node.args[:-1], shifted(node.args[-1], by)])
        if len(node.args) > 1:
            yield "range", with_(node, args=[shifted(node.args[0], 1), *node.args[1:]])


def of_constant(node: ast.Constant, role: str, strings: list[str]) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif role == "axis":
        yield "axis", ast.Constant({0: 1, 1: 0, -1: 0}[value])
    elif isinstance(value, int):
        for by in (1, -1):
            if role != "summand" or value + by:  # x + 0 is x: the term dropped
                yield "index" if role == "index" else "constant", ast.Constant(value + by)
    elif isinstance(value, float):
        yield "constant", ast.Constant(round(value * 1.1, 12) if value else 1.0)
    elif isinstance(value, str) and len(strings) > 1:
        yield "name", ast.Constant(strings[(strings.index(value) + 1) % len(strings)])


def of_statement(node: ast.stmt, bound: set[str]) -> Iterator[tuple[str, ast.AST]]:
    """`bound`: the names that have a value before this statement."""
    if isinstance(node, ast.AugAssign):
        if type(node.op) in SWAPPED:
            yield "sign", with_(node, op=SWAPPED[type(node.op)]())
        yield "statement dropped", ast.Assign([node.target], node.value)
    if isinstance(node, ast.AugAssign | ast.Expr | ast.Break | ast.Continue):
        yield "statement dropped", ast.Pass()
    if isinstance(node, ast.Assign) and all(not isinstance(t, ast.Name) or t.id in bound for t in node.targets) \
            and not isinstance(node.targets[0], ast.Tuple):
        yield "statement dropped", ast.Pass()
    if isinstance(node, ast.If) and not isinstance(node.test, ast.UnaryOp):
        yield "condition", with_(node, test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
        first, second, *rest = node.value.elts
        yield "arguments exchanged", with_(node, value=ast.Tuple([second, first, *rest], ast.Load()))


def changes(node: ast.AST, role: str, strings: list[str], bound: set[str]) -> Iterator[tuple[str, ast.AST]]:
    """All (kind, what stands there instead) of one node of the syntax tree."""
    match node:
        case ast.BinOp():
            yield from of_operation(node)
        case ast.Call():
            yield from of_call(node)
        case ast.Constant():
            yield from of_constant(node, role, strings)
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield "sign" if isinstance(node.op, ast.USub) else "condition", node.operand
        case ast.Compare():
            for index, op in enumerate(node.ops):
                yield "comparison", with_(node, ops=[*node.ops[:index], BOUNDARY[type(op)](), *node.ops[index + 1 :]])
        case ast.BoolOp():
            yield "condition", with_(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            for value in node.values if len(node.values) == 2 else ():
                yield "condition", value
        case ast.IfExp():
            yield "condition", with_(node, body=node.orelse, orelse=node.body)
        case ast.comprehension() if node.ifs:
            yield "condition", with_(node, ifs=[])
        case ast.Attribute(attr="T"):
            yield "transpose", node.value
        case ast.Slice():
            yield "index", with_(node, lower=shifted(node.lower, 1) if node.lower else ast.Constant(1))
            yield "index", with_(node, upper=shifted(node.upper, -1) if node.upper else ast.Constant(-1))
        case ast.Name() if role == "index":
            for by in (1, -1):
                yield "index", shifted(node, by)
        case ast.stmt():
            yield from of_statement(node, bound)


def validations(function: ast.FunctionDef) -> list[ast.stmt]:
    """The statements that only refuse bad input, with those that prepare them: tests/unit/test_bad_input.py is about these."""
    found: list[ast.stmt] = []
    statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    while True:
        inside = {part for node in found for part in ast.walk(node)}
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in inside}
        before = len(found)
        for node in statements:
            match node:
                case _ if node in found:
                    continue
                case ast.Raise():
                    found.append(node)
                case ast.Expr(value=ast.Call(func=func)) if called(func).lstrip("_").startswith("expects"):
                    found.append(node)
                case ast.For(body=body) if all(part in found for part in body):
                    found.append(node)
                case ast.Assign(targets=[ast.Name(id=name)]) if name not in used and found:
                    found.append(node)
        if len(found) == before:
            return found


def places(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, ast.AST, str]]:
    """(parent, field, index, node, statement, role) for everything in a function that may be changed."""
    def below(parent: ast.AST, statement: ast.AST, role: str) -> Iterator:
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "decorator_list", "ctx") or isinstance(parent, ast.JoinedStr):
                continue
            for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                if not isinstance(node, ast.AST) or is_docstring or node in refuses or getattr(node, "arg", None) in PLUMBING:
                    continue
                where = node if isinstance(node, ast.stmt) else statement
                new_role = "index" if field == "slice" or (role == "index" and isinstance(parent, ast.Tuple | ast.UnaryOp)) else ""
                if isinstance(parent, ast.keyword) and parent.arg == "axis":
                    new_role = "axis"
                if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub):
                    new_role = "summand"
                yield parent, field, index, node, where, new_role
                yield from below(node, where, new_role)
    refuses = set(validations(function))
    yield from below(function, function, "")


def head(statement: ast.AST) -> str:
    """The statement in one line: of a loop, a condition or a function only the first, without decorators."""
    text = ast.unparse(statement)
    return next(line for line in text.splitlines() if not line.startswith("@")) if hasattr(statement, "body") else " ".join(text.split())


def stripped(function: ast.FunctionDef) -> str:
    """The function without docstring, annotations and the check of its shapes: what its mutants depend on."""
    new = copy.deepcopy(function)
    for node in ast.walk(new):
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None and not isinstance(node, ast.AnnAssign):
                setattr(node, field, None)
    new.decorator_list = [part for part in new.decorator_list if ast.unparse(part) != "shaped"]
    if ast.get_docstring(new) is not None:
        new.body = new.body[1:] or [ast.Pass()]
    return ast.unparse(new)


def all_mutants(name: str, source: str) -> list[Mutant]:
    """Every mutant of one function, each changed text once, in the order of the text."""
    tree = ast.parse(source)
    function = tree.body[0]
    strings = sorted({n.value for _, _, _, n, _, _ in places(function) if isinstance(n, ast.Constant) and isinstance(n.value, str)})
    bound = {argument.arg for argument in [*function.args.args, *function.args.kwonlyargs]}
    original, found = ast.unparse(tree), {}
    for parent, field, index, node, statement, role in list(places(function)):
        for kind, new in list(changes(node, role, strings, set(bound))):
            was = head(statement)
            ast.fix_missing_locations(ast.copy_location(new, node if hasattr(node, "lineno") else statement))
            if index is None:
                setattr(parent, field, new)
            else:
                getattr(parent, field)[index] = new
            becomes = head(new if statement is node else statement)
            text = ast.unparse(ast.fix_missing_locations(tree))
            if index is None:
                setattr(parent, field, node)
            else:
                getattr(parent, field)[index] = node
            if text != original:
                found.setdefault(text, Mutant(name, kind, was, becomes, text))
        if isinstance(node, ast.Assign):
            bound |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return list(found.values())


def drawn(mutants: list[Mutant], cap: int = CAP) -> list[Mutant]:
    """At most `cap` of them: one of each kind, then a second of each kind, and so on."""
    if len(mutants) <= cap:
        return mutants
    generator, kinds = random.Random(mutants[0].function), {}
    for mutant in generator.sample(mutants, len(mutants)):
        kinds.setdefault(mutant.kind, []).append(mutant)
    rounds = [(place, mutant) for same in kinds.values() for place, mutant in enumerate(same)]
    chosen = {mutant for _, mutant in sorted(rounds, key=lambda pair: pair[0])[:cap]}
    return [mutant for mutant in mutants if mutant in chosen]


def functions(chapter: str) -> dict[str, str]:
    """{name: source} of the functions and methods in the chapter's specification, those that only refuse bad input left out."""
    path = book.SOURCE / "spec" / f"{chapter}.py"
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(text).body:
        for part in node.body if isinstance(node, ast.ClassDef) else [node]:
            name = part.name if part is node and isinstance(node, ast.FunctionDef) else f"{getattr(node, 'name', '')}.{getattr(part, 'name', '')}"
            if isinstance(part, ast.FunctionDef) and not name.startswith("_expects") and part.name != "__post_init__":
                found[name] = stripped(part)
    return found
