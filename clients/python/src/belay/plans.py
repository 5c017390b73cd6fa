"""Plans: data in the form that docs/user-guide/plans.md describes, from a dict, a file, or a small builder.

The builder is sugar over the dict, and never required:

    plan = Plan("hello")
    fetch = plan.step("fetch", tool="noop", arguments={"output": {"n": 3}})
    plan.step("use", tool="noop", arguments={"output": f"n is {fetch.result.n}"})
    plan.to_dict()
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from belay._values import to_json
from belay.errors import UsageError
from belay.v1 import plan_pb2

#: The largest plan document, in bytes.
MAX_PLAN_BYTES = 4 << 20
#: How deep plans may be nested in files.
MAX_NESTED_FILES = 5

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Reference:
    """A reference to a value of a step or an input, which becomes the text `${…}` in a plan.

    Attributes and items lead into the value: `fetch.result.matches[0].path`, and `fetch.result["a name"]` for names that are no identifiers. In an f-string it
    is a part of a text; alone, the value keeps its type.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: str | int) -> Reference:
        if isinstance(key, int):
            return Reference(f"{self._path}[{key}]")
        if not _IDENTIFIER.fullmatch(key):
            return Reference(f"{self._path}[{json.dumps(key, ensure_ascii=False)}]")
        return Reference(f"{self._path}.{key}")

    def __iter__(self) -> Any:
        raise TypeError("a reference is no list: use for_each to run a step for each entry")

    def __str__(self) -> str:
        return f"${{{self._path}}}"

    __belay_json__ = __str__

    def __repr__(self) -> str:
        return f"Reference({self._path!r})"


class StepRef:
    """A step that was added to a plan: `result`, `state` and `failure` refer to it in later steps."""

    def __init__(self, id: str) -> None:
        #: The id of the step.
        self.id = id

    @property
    def result(self) -> Reference:
        """A reference to the step's result."""
        return Reference(f"{self.id}.result")

    @property
    def state(self) -> Reference:
        """A reference to the state in which the step has ended."""
        return Reference(f"{self.id}.state")

    @property
    def failure(self) -> Reference:
        """A reference to the step's failure."""
        return Reference(f"{self.id}.failure")

    def __belay_json__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"StepRef({self.id!r})"


class Plan:
    """A builder of a plan. Every field of docs/user-guide/plans.md can be given by its name; none is checked here, because the server checks the plan."""

    def __init__(self, id: str, **fields: Any) -> None:
        self._document: dict[str, Any] = {"id": id, **fields, "steps": []}

    def step(
        self,
        id: str,
        *,
        tool: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        depends_on: list[StepRef | str | dict[str, Any]] | None = None,
        **fields: Any,
    ) -> StepRef:
        """Adds a step and returns a reference to it. `depends_on` takes ids or what `step` has returned."""
        step: dict[str, Any] = {"id": id}
        named = {"tool": tool, "arguments": arguments, "depends_on": depends_on}
        step |= {name: value for name, value in named.items() if value is not None}
        self._document["steps"].append(step | fields)
        return StepRef(id)

    def input(self, name: str, **fields: Any) -> Reference:
        """Declares an input (`description`, `schema`, `default`) and returns a reference to its value."""
        self._document.setdefault("inputs", {})[name] = fields
        return Reference(f"inputs.{name}")

    def output(self, name: str, value: Any) -> None:
        """Declares an output of the plan."""
        self._document.setdefault("outputs", {})[name] = value

    def to_dict(self) -> dict[str, Any]:
        """Returns the plan as data, with references as texts."""
        document: dict[str, Any] = json.loads(to_json(self._document, "plan"))
        return document


def literal(text: str) -> str:
    """Returns a text with `${` escaped, so that nothing in it is taken for a reference."""
    return text.replace("${", "$${")


#: What a plan may be given as: data, a builder, or the path of a YAML or JSON file.
PlanLike = Mapping[str, Any] | Plan | str | os.PathLike[str]


def to_document(plan: Any) -> plan_pb2.PlanDocument:
    """Returns a plan as the document that is sent. A YAML file is sent as it is written, so that violations have its lines."""
    if isinstance(plan, Plan):
        plan = plan.to_dict()
    if isinstance(plan, Mapping):
        return _checked(plan_pb2.PLAN_FORMAT_JSON, to_json(dict(plan), "plan"))
    if not isinstance(plan, (str, os.PathLike)):
        raise UsageError(f"`plan` is a {type(plan).__name__}: give a dict, a belay.Plan, or the path of a YAML or JSON file.", field="plan")
    if isinstance(plan, str) and ("\n" in plan or plan.lstrip().startswith("{")):
        raise UsageError("`plan` is the text of a plan: give its path, or the data as a dict (json.loads).", field="plan")
    path = Path(plan)
    text = _read(path)
    is_json = path.suffix.lower() == ".json"
    if _names_files(text, is_json):
        data = _parse(text, path)
        if _has_files(data):
            _insert_files(data, path.resolve().parent, path.resolve().parent, (path.resolve(),))
            return _checked(plan_pb2.PLAN_FORMAT_JSON, to_json(data, "plan"))
    return _checked(plan_pb2.PLAN_FORMAT_JSON if is_json else plan_pb2.PLAN_FORMAT_YAML, text)


def _checked(format: int, text: str) -> plan_pb2.PlanDocument:
    size = len(text.encode("utf-8"))
    if size > MAX_PLAN_BYTES:
        message = f"`plan` has {size} bytes, and at most {MAX_PLAN_BYTES} are allowed: put large content into files or inputs."
        raise UsageError(message, reason="PLAN_TOO_LARGE", field="plan")
    return plan_pb2.PlanDocument(format=plan_pb2.PlanFormat.Name(format), text=text)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The plan's file `{path}` cannot be read: {error}.", reason="PLAN_UNREADABLE", field="plan") from error


def _names_files(text: str, is_json: bool) -> bool:
    """Whether a step may name a file: a quick look, so that most YAML files need no parser here."""
    return is_json or re.search(r"""\bplan["']?\s*:\s*[^\s{\[]""", text) is not None


def _parse(text: str, path: Path) -> Any:
    try:
        if path.suffix.lower() == ".json":
            return json.loads(text)
        return _parse_yaml(text)
    except ImportError as error:
        message = f"The plan's file `{path}` names other files, and reading it needs a YAML parser: pip install 'belay[yaml]'."
        raise UsageError(message, reason="PLAN_UNREADABLE", field="plan") from error
    except ValueError:
        # The server says what is wrong with the text, with line and column.
        return None


def _parse_yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """YAML 1.2: `on`, `yes` and `12:30` are texts, as for the server."""

        yaml_implicit_resolvers: dict[Any, Any] = {}

    core = [
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ]
    for kind, pattern, first in core:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"^(?:{pattern})$"), list(first))
    Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: _integer(loader.construct_scalar(node)))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _integer(text: str) -> int:
    return int(text, 0) if re.match(r"0[ox]", text) else int(text)


def _steps(plan: Any) -> Any:
    """Yields every step of a plan, also those in groups."""
    pending = list(plan.get("steps") or ()) if isinstance(plan, dict) else []
    while pending:
        step = pending.pop()
        if isinstance(step, dict):
            yield step
            if isinstance(step.get("steps"), list):
                pending += step["steps"]


def _has_files(plan: Any) -> bool:
    return any(isinstance(step.get("plan"), str) or _has_files(step.get("plan")) for step in _steps(plan))


def _insert_files(plan: Any, folder: Path, root: Path, chain: tuple[Path, ...]) -> None:
    """Puts the plans of files in the place of their names. They lie in the folder of the outermost plan or below it."""
    for step in _steps(plan):
        inner = step.get("plan")
        if isinstance(inner, dict):
            _insert_files(inner, folder, root, chain)
        if not isinstance(inner, str):
            continue
        path = (folder / inner).resolve()
        where = f"The step `{step.get('id')}` of `{chain[-1]}` names the file `{inner}`"
        if os.path.isabs(inner) or not path.is_relative_to(root):
            raise UsageError(f"{where}, which is not in the folder of the outermost plan, {root}.", reason="PLAN_REFUSED", field="plan")
        if path in chain:
            names = " → ".join(str(one) for one in (*chain, path))
            raise UsageError(f"{where}, which contains itself: {names}.", reason="PLAN_REFUSED", field="plan")
        if len(chain) > MAX_NESTED_FILES:
            raise UsageError(f"{where}, and plans are nested {MAX_NESTED_FILES} deep at most.", reason="PLAN_REFUSED", field="plan")
        data = _parse(_read(path), path)
        if not isinstance(data, dict):
            raise UsageError(f"{where}, which is no plan.", reason="PLAN_REFUSED", field="plan")
        _insert_files(data, path.parent, root, (*chain, path))
        step["plan"] = data
