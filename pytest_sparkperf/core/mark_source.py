"""Marks as the source text of a test file has them, so that two versions of it can be put side by side."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

_MARK = "sparkperf"
_OF_PARAMETERS = "marks of parameters"
_Body = Sequence[ast.stmt]
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def marks_in(source: str) -> dict[str, dict[str, str]] | None:
    """Return the keywords of each test's mark as written, by ``Class::test``; None for what is not Python.

    Marks of module, class and function are merged, the closest winning. A name that the module itself gives
    a value stands for that value; what is imported stays a name.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return dict(_tests(tree.body, "", _assigned(tree.body, named), named))


def changed_keywords(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]], test: str, ref: str
) -> list[str]:
    """Say how the mark of one test differs from the one that ``ref`` has; nothing where it does not."""
    new = after.get(test, {})
    old = before.get(test)
    if old is None:
        return [f"its mark is new, {ref} has none"] if new else []
    names = (*old, *(name for name in new if name not in old))
    return [_change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _change(name: str, old: str | None, new: str | None) -> str:
    sign = ": " if name == _OF_PARAMETERS else "="
    if old is None:
        return f"{name}{sign}{new} is new"
    return f"{name}{sign}{old} is gone" if new is None else f"{name}{sign}{old} -> {new}"


def _tests(
    body: _Body, prefix: str, outer: Mapping[str, str], named: Mapping[str, ast.expr]
) -> Iterator[tuple[str, dict[str, str]]]:
    for node in body:
        if isinstance(node, _Function):
            own = _keywords(node.decorator_list, named)
            if outer or own:
                yield f"{prefix}{node.name}", {**outer, **own}
        elif isinstance(node, ast.ClassDef):
            inner = {**outer, **_keywords(node.decorator_list, named), **_assigned(node.body, named)}
            yield from _tests(node.body, f"{prefix}{node.name}::", inner, named)


def _assigned(body: _Body, named: Mapping[str, ast.expr]) -> dict[str, str]:
    """Return the keywords of ``pytestmark = sparkperf(...)``, or of a list of marks."""
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            # Of a list pytest takes the first for the closest.
            found |= _keywords(marks[::-1], named)
    return found


def _keywords(marks: Sequence[ast.expr], named: Mapping[str, ast.expr]) -> dict[str, str]:
    """Return the keywords of all marks of ours, the last winning, as the decorator next to a test does.

    Those of parameters are kept apart: each belongs to a case of its own.
    """
    found: dict[str, str] = {}
    for mark in marks:
        if _is_ours(mark):
            assert isinstance(mark, ast.Call)
            found |= {_name(one): _text(one.value, named) for one in mark.keywords}
            continue
        nested = [one for one in ast.walk(mark) if _is_ours(one)]
        words = [
            f"{_name(word)}={_text(word.value, named)}"
            for one in nested
            if isinstance(one, ast.Call)
            for word in one.keywords
        ]
        if words:
            found[_OF_PARAMETERS] = ", ".join(words)
    return found


def _is_ours(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return (isinstance(called, ast.Name) and called.id == _MARK) or (
        isinstance(called, ast.Attribute) and called.attr == _MARK
    )


def _name(keyword: ast.keyword) -> str:
    return keyword.arg or "**"


def _text(value: ast.expr, named: Mapping[str, ast.expr]) -> str:
    if isinstance(value, ast.Name) and value.id in named:
        value = named[value.id]
    return ast.unparse(value)
