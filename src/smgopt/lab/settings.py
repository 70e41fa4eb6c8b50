"""From what a person writes, a file and ``key=value`` pairs, to a configuration; and what is wrong with it.

Every setting has a full name, ``optimizer.lr``, and a short one, ``lr``, if no other section has it too.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from smgopt.lab import toml
from smgopt.lab.config import NETWORKS, Config, SMGOptConfig, arguments_of, baselines
from smgopt.lab.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class Setting(NamedTuple):
    """One setting as a person meets it; ``only`` names the choice that it belongs to, if not to all."""

    name: str
    short: str
    default: Any
    meaning: str
    only: str = ""


class Kinds(NamedTuple):
    """What decides which other settings there are."""

    network: str = "resnet"
    optimizer: str = "smgopt"

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Kinds:
        """Those of a tree of sections, whether there are such or not."""
        usual = cls()
        return cls(
            _named(tree, "network", "kind", usual.network), _named(tree, "optimizer", "name", usual.optimizer)
        )


def _named(tree: Mapping[str, Any], section: str, key: str, usual: str) -> str:
    part = tree.get(section)
    name = part.get(key, usual) if isinstance(part, dict) else usual
    return name.lower() if isinstance(name, str) else usual


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
    usual = Kinds()
    found = _listed(usual, "")
    for kind in NETWORKS:
        if kind != usual.network:
            rows = _listed(usual._replace(network=kind), f"network={kind}")
            found += [r for r in rows if r.name.startswith("network.") and r.name != "network.kind"]
    order = list(Config.model_fields)
    return sorted(found, key=lambda setting: order.index(setting.name.split(".")[0]))


def _listed(kinds: Kinds, only: str) -> list[Setting]:
    short = {full: name for name, full in _short_names(kinds).items()}
    return [
        Setting(name, short.get(name, ""), field.default, field.description or "", only)
        for name, field in _fields(kinds).items()
    ]


def _fields(kinds: Kinds) -> dict[str, FieldInfo]:
    """All settings that there are, by full name."""
    found = {}
    for section in Config.model_fields:
        for key, field in _section(section, kinds).model_fields.items():
            found[f"{section}.{key}"] = field
    if kinds.optimizer in baselines():
        ours = {name for name in found if name.startswith("optimizer.") and name != "optimizer.name"}
        theirs = arguments_of(kinds.optimizer, all_of_them=True)
        found = {name: field for name, field in found.items() if name not in ours}
        found |= {f"optimizer.{key}": FieldInfo(default=value) for key, value in theirs.items()}
    return found


def _section(name: str, kinds: Kinds) -> type[BaseModel]:
    if name == "network":
        return NETWORKS.get(kinds.network, NETWORKS[Kinds().network])
    return (
        SMGOptConfig if name == "optimizer" else cast("type[BaseModel]", Config.model_fields[name].annotation)
    )


def _short_names(kinds: Kinds) -> dict[str, str]:
    """The full names by the short ones."""
    full = _fields(kinds)
    keys = Counter(name.split(".")[1] for name in full)
    short = {name.split(".")[1]: name for name in full if keys[name.split(".")[1]] == 1}
    return {**short, "data": "data.name", "network": "network.kind", "optimizer": "optimizer.name"}


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

    # Network and optimizer first, because they decide which other names there are.
    deciding = ("network", "network.kind", "optimizer", "optimizer.name")
    for key in sorted(given, key=lambda key: key not in deciding):
        value = given[key]
        shown = f"{key}={toml.shown(value) if isinstance(value, bool | float | list) else value}: "
        kinds = Kinds.of(tree)
        names = _short_names(kinds) | {name: name for name in _fields(kinds)}
        if key not in names:
            wrong.append(f"{shown}there is no setting {key!r}{_without(key, kinds)}{_near(key, names)}")
            continue
        section, name = names[key].split(".")
        if isinstance(tree.setdefault(section, {}), dict):
            tree[section][name] = value
            places[names[key]] = shown

    kinds = Kinds.of(tree)
    for key in _unknown(tree, kinds):
        near = _short_names(kinds).get(key)
        hint = f", did you mean {near!r}?" if near else _near(key, [*_fields(kinds), *Config.model_fields])
        complain(key, f"there is no setting {key!r}{_without(key, kinds)}{hint}")
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


def _without(key: str, kinds: Kinds) -> str:
    """In words, the choice with which there is no such setting, if there is one with another."""
    if key in _short_names(kinds):
        return ""
    others = {
        "optimizer": [kinds._replace(optimizer=Kinds().optimizer)],
        "network": [kinds._replace(network=kind) for kind in NETWORKS],
    }
    for section, choices in others.items():
        if any(key in names for other in choices for names in (_short_names(other), _fields(other))):
            return f" with the {section} {getattr(kinds, section)!r}"
    return ""


def _unknown(tree: Mapping[str, Any], kinds: Kinds) -> list[str]:
    """The keys that are no settings."""
    known = _fields(kinds)
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
        if parts[0] in Kinds._fields:
            del parts[1:2]
        key = ".".join(parts[:2])
        if len(parts) < 2:
            found.setdefault(key, f"{key} must be a section, [{key}] with settings below it")
            continue
        value, annotation = tree[parts[0]][parts[1]], _annotation(key, Kinds.of(tree))
        wanted = _wanted(annotation, entry["type"], context)
        found.setdefault(key, f"{key} must be {wanted}, not {value!r}{_meant(annotation, value)}")
    return found


def _annotation(key: str, kinds: Kinds) -> Any:
    """The type of a setting; that of the kind of network is a choice of all kinds."""
    return Literal[tuple(NETWORKS)] if key == "network.kind" else _fields(kinds)[key].annotation


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
