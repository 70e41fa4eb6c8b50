"""From what a person writes, a file and ``key=value`` pairs, to a configuration; and what is wrong with it.

Every setting has a full name, ``optimizer.lr``, and a short one, ``lr``, if no other section has it too.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from smgopt.lab import toml
from smgopt.lab.config import Config, SMGOptConfig, arguments_of, baselines
from smgopt.lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class Setting(NamedTuple):
    """One setting as a person meets it."""

    name: str
    short: str
    default: Any
    meaning: str


def load(path: Path | None = None, pairs: Sequence[str] = ()) -> Config:
    """The configuration of a file, changed by ``key=value`` pairs.

    Args:
        path: a TOML file with the sections of ``Config``; without it, the defaults.
        pairs: as in ``["depth=2048", "optimizer.lr=0.1"]``. A value is read as TOML has it; what TOML does
            not know is text, so that quotation marks are not needed.

    Raises:
        InputError: everything that is wrong, a line each, with its place and the nearest right name.

    Example:
        >>> load(pairs=["depth=64", "levels=2", "optimizer=adam"]).optimizer.name
        'adam'
        >>> load(pairs=["detph=64"])
        Traceback (most recent call last):
        smgopt.lab.errors.InputError: detph=64: there is no setting 'detph', did you mean 'depth'?
    """
    tree, text = toml.read(path) if path is not None else ({}, "")
    return _make(tree, _parsed(pairs), path, text)


def make(tree: Mapping[str, Any] | None = None, /, **given: Any) -> Config:
    """The same from Python: sections as a mapping, settings by their short names.

    Tuples count as lists, paths as text, and None as not set.

    Raises:
        InputError: as ``load``.

    Example:
        >>> make({"run": {"seed": 1}}, depth=64, levels=2, smoothing=[[1, 0], [1, 0]]).run.seed
        1
    """
    return _make(tree or {}, {key: _plain(value) for key, value in given.items()})


def change(config: Config, pairs: Sequence[str]) -> Config:
    """A configuration with some settings changed; a new limit of cycles or epochs replaces the old one.

    Raises:
        InputError: as ``load``.

    Example:
        >>> change(make(cycles=5), ["epochs=2.0"]).run.cycles is None
        True
    """
    tree, given = config.tree(), _parsed(pairs)
    if {"cycles", "run.cycles", "epochs", "run.epochs"} & given.keys():
        tree["run"] = {key: value for key, value in tree["run"].items() if key not in ("cycles", "epochs")}
    return _make(tree, given)


def listing() -> list[Setting]:
    """All settings with their defaults, in the order of the sections."""
    short = {full: name for name, full in _short_names("smgopt").items()}
    defaults = Config().model_dump()
    return [
        Setting(full, short.get(full, ""), defaults[section][key], field.description or "")
        for (section, key), field in _FIELDS.items()
        for full in [f"{section}.{key}"]
    ]


def _section(name: str) -> type[BaseModel]:
    annotation = Config.model_fields[name].annotation
    return SMGOptConfig if name == "optimizer" else cast("type[BaseModel]", annotation)


#: The fields by section and key.
_FIELDS = {
    (section, key): field
    for section in Config.model_fields
    for key, field in _section(section).model_fields.items()
}


def _full_names(optimizer: str) -> list[str]:
    """The full names of all settings that there are with this optimizer."""
    if optimizer not in baselines():
        return [f"{section}.{key}" for section, key in _FIELDS]
    others = [f"{section}.{key}" for section, key in _FIELDS if section != "optimizer"]
    return [
        *others,
        "optimizer.name",
        *(f"optimizer.{key}" for key in arguments_of(optimizer, all_of_them=True)),
    ]


def _short_names(optimizer: str) -> dict[str, str]:
    """The full names by the short ones."""
    full = _full_names(optimizer)
    keys = Counter(name.split(".")[1] for name in full)
    short = {name.split(".")[1]: name for name in full if keys[name.split(".")[1]] == 1}
    return {**short, "data": "data.name", "optimizer": "optimizer.name"}


def _parsed(pairs: Sequence[str]) -> dict[str, Any]:
    given = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not _is_text(pair):
            raise InputError(f"{pair!r} is no setting: write it as name=value, as in depth=64")
        given[key.strip()] = _value(value)
    return given


def _is_text(pair: str) -> bool:
    try:
        pair.encode()
    except UnicodeEncodeError:  # bytes on the command line that are no UTF-8
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _value(text: str) -> Any:
    """A value as TOML or Python has it, else the text itself."""
    for read in (lambda: toml.parse(f"value = {text}"), lambda: {"value": float(text)}):
        try:
            found = read()
        except ValueError:
            continue
        # More than one key: the text was not one value.
        if found.keys() == {"value"}:
            return found["value"]
    return {"True": True, "False": False}.get(text, text)


def _make(
    tree: Mapping[str, Any], given: Mapping[str, Any], path: Path | None = None, text: str = ""
) -> Config:
    """The configuration of a tree of sections, changed by settings under full or short names."""
    tree = {name: dict(part) if isinstance(part, dict) else part for name, part in tree.items()}
    wrong: list[str] = []
    places: dict[str, str] = {}

    def complain(key: str, sentence: str) -> None:
        line = toml.line_of(text, key.split(".")) if path and key not in places else None
        place = f"{path}, line {line}: " if line else places.get(key, "")
        wrong.append(place + sentence)

    # The optimizer first, because it decides which other names there are.
    for key in sorted(given, key=lambda key: key not in ("optimizer", "optimizer.name")):
        value = given[key]
        shown = f"{key}={toml.shown(value) if isinstance(value, bool | float | list) else value}: "
        names = _short_names(_optimizer(tree)) | {name: name for name in _full_names(_optimizer(tree))}
        if key not in names:
            where = f" with the optimizer {_optimizer(tree)!r}" if key in _short_names("smgopt") else ""
            wrong.append(f"{shown}there is no setting {key!r}{where}{_near(key, names)}")
            continue
        section, name = names[key].split(".")
        if isinstance(tree.setdefault(section, {}), dict):
            tree[section][name] = value
            places[names[key]] = shown

    for key in _unknown(tree):
        optimizer = _optimizer(tree)
        where = f" with the optimizer {optimizer!r}" if key.startswith("optimizer.") else ""
        near = _short_names(optimizer).get(key)
        hint = (
            f", did you mean {near!r}?"
            if near
            else _near(key, [*_full_names(optimizer), *Config.model_fields])
        )
        complain(key, f"there is no setting {key!r}{where}{hint}")
        section, _, name = key.partition(".")
        tree[section].pop(name) if name else tree.pop(section)

    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        for key, sentence in _sentences(error, tree).items():
            complain(key, sentence)
    if wrong:
        raise InputError("\n".join(wrong))
    return config


def _optimizer(tree: Mapping[str, Any]) -> str:
    section = tree.get("optimizer")
    name = section.get("name", "smgopt") if isinstance(section, dict) else "smgopt"
    return name.lower() if isinstance(name, str) else "smgopt"


def _unknown(tree: Mapping[str, Any]) -> list[str]:
    """The keys that are no settings."""
    known = _full_names(_optimizer(tree))
    found = [name for name in tree if name not in Config.model_fields]
    for name, section in tree.items():
        if name in Config.model_fields and isinstance(section, dict):
            found += [f"{name}.{key}" for key in section if f"{name}.{key}" not in known]
    return found


def _near(word: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else "; `smgopt settings` lists all there are"


def _sentences(error: ValidationError, tree: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong, by full name: one sentence each."""
    found: dict[str, str] = {}
    for entry in error.errors():
        context = entry.get("ctx", {})
        if entry["type"] == "setting":
            found.setdefault(context["key"], context["sentence"])
            continue
        # What follows section and key says which member of a union was tried.
        parts = [str(part) for part in entry["loc"]]
        if parts[0] == "optimizer":
            del parts[1:2]
        key = ".".join(parts[:2])
        if len(parts) < 2:
            found.setdefault(key, f"{key} must be a section, [{key}] with settings below it")
            continue
        value, field = tree[parts[0]][parts[1]], _FIELDS[parts[0], parts[1]]
        wanted = _wanted(field.annotation, entry["type"], context)
        found.setdefault(key, f"{key} must be {wanted}, not {value!r}{_meant(field.annotation, value)}")
    return found


_RANGES = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def _wanted(annotation: Any, kind: str, context: Mapping[str, Any]) -> str:
    if kind in _RANGES:
        limit, words = _RANGES[kind]
        return f"{words} {context[limit]}"
    return "a finite number" if kind == "finite_number" else _described(annotation)


def _meant(annotation: Any, value: Any) -> str:
    """The nearest of the names that a setting takes."""
    choices = [
        v
        for part in (annotation, *get_args(annotation))
        if get_origin(part) is Literal
        for v in get_args(part)
    ]
    close = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    return f", did you mean {close[0]!r}?" if close else ""


def _described(annotation: Any) -> str:
    """A type in words."""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if annotation in names:
        return names[annotation]
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _described(members[0])
    if origin is Literal:
        return " or ".join(map(repr, members))
    if origin is list:
        words = _described(members[0]).removeprefix("a ")
        return "a list of " + (f"lists{words[4:]}" if words.startswith("list ") else f"{words}s")
    return " or ".join(_described(member) for member in members if member is not type(None))
