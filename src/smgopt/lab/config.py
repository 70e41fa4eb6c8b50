"""The configuration of a run: every setting, its type, its default and what it means.

Another kind of network gets a class of its own beside ``ResNetConfig``, with its own ``kind``, a place in
``Network``, and a builder in ``smgopt.lab.build``.
"""

import difflib
import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

Number = Annotated[float, Field(allow_inf_nan=False)]


def problem(key: str, sentence: str) -> PydanticCustomError:
    """An error of the setting ``key``, wherever in the validation it is noticed."""
    return PydanticCustomError("setting", "{key}: {sentence}", {"key": key, "sentence": sentence})


class Section(BaseModel):
    """What all sections share: nothing unknown, nothing converted, nothing changed later."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ResNetConfig(Section):
    """The paper's network."""

    kind: Literal["resnet"] = Field(
        default="resnet", description="the network: resnet, the paper's, or convresnet, for images"
    )
    width: int = Field(default=10, ge=1, description="components of the state")
    depth: int = Field(default=256, ge=1, description="residual blocks of the finest network")
    T: Number = Field(
        default=1.0, gt=0, description="length of the time interval; a block's step is T / depth"
    )
    activation: Literal["relu", "tanh"] = Field(default="relu", description="the nonlinearity of a block")
    closing_relu: bool = Field(
        default=False, description="a relu behind the closing map, as in the paper's experiments"
    )

    @property
    def blocks(self) -> int:
        """Of the finest network."""
        return self.depth


class ConvResNetConfig(Section):
    """A residual network for images."""

    kind: Literal["convresnet"] = Field(
        default="convresnet", description="the network: three stages of convolutions, for images"
    )
    width: int = Field(default=16, ge=1, description="channels of the first stage")
    depth: int = Field(default=8, ge=1, description="residual blocks of each stage of the finest network")
    norm: Literal["batch", "group", "none"] = Field(default="batch", description="how the blocks normalise")

    @property
    def blocks(self) -> int:
        """Of the finest network, in all three stages."""
        return 3 * self.depth


#: The sections that a network can have, by their kind.
NETWORKS: dict[str, type[ResNetConfig] | type[ConvResNetConfig]] = {
    "resnet": ResNetConfig,
    "convresnet": ConvResNetConfig,
}


class HierarchyConfig(Section):
    """How many networks there are, each of half the depth of the next."""

    levels: int = Field(
        default=4, ge=1, description="networks of depth N, N/2, N/4, …, the finest one included"
    )


class SMGOptConfig(Section):
    """sMG/OPT; ranges are checked by ``smgopt.SMGOpt`` itself."""

    name: Literal["smgopt"] = Field(
        default="smgopt", description="smgopt, or one of torch.optim's (sgd, adam, adamw, rmsprop, …)"
    )
    lr: Number | list[Number] = Field(
        default=0.1, description="step of gradient descent, one for all levels or one a level"
    )
    smoothing: Literal["table-1", "table-2"] | list[list[int]] = Field(
        default="table-2", description="the paper's tables, or one [ν, μ] a level, coarsest first"
    )
    weight_decay: Number = Field(default=0.0, description="β of the regularisation β/2 ‖θ‖²")
    coupling: Literal["paper", "consistent"] = Field(
        default="consistent", description="gradient that coarse levels agree with"
    )
    gradient_restriction: Literal["injection", "adjoint"] = Field(
        default="adjoint", description="how gradients are restricted"
    )
    boundary: Literal["zero", "constant"] = Field(
        default="zero", description="what the last odd block takes of a correction"
    )
    line_search: bool = Field(default=True, description="false: every correction is taken whole (FAS)")
    initial_step: Number = Field(default=1.0, description="ᾱ, the first step that the line search tries")
    shrink: Number = Field(default=0.5, description="ρ, the factor by which it shrinks")
    sufficient_decrease: Number = Field(
        default=0.5, description="c₁, the share of the promised decrease it asks for"
    )
    max_trials: int = Field(default=10, description="after how many trials it gives up")

    def steps(self, levels: int) -> list[list[int]]:
        """The smoothing of each of the levels.

        Raises:
            ValueError: the paper's Table 1 has no such number of levels.

        Example:
            >>> SMGOptConfig(smoothing="table-1").steps(2)
            [[2, 0], [1, 0]]
        """
        from smgopt.smoothing import TABLE_1, pattern

        if not isinstance(self.smoothing, str):
            return self.smoothing
        if self.smoothing == "table-2":
            return [list(pair) for pair in pattern(levels)]
        if levels not in TABLE_1:
            known = ", ".join(map(str, TABLE_1))
            raise ValueError(f"Table 1 is for {known} levels, not for {levels}: take table-2, or a list")
        return [list(pair) for pair in TABLE_1[levels]]


class TorchConfig(BaseModel):
    """One of torch's optimizers on the finest network, with the keyword arguments of its constructor."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: str

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            return given
        name = given["name"].lower()
        if name not in baselines():
            return given
        return {**arguments_of(name), **given, "name": name}

    @model_validator(mode="after")
    def _check(self) -> "TorchConfig":
        if self.name not in baselines():
            known = ["smgopt", *sorted(baselines())]
            close = difflib.get_close_matches(self.name.lower(), known, n=1)
            hint = f", did you mean {close[0]!r}?" if close else "."
            raise problem(
                "optimizer.name", f"there is no optimizer {self.name!r}{hint} There are {', '.join(known)}"
            )
        allowed = arguments_of(self.name, all_of_them=True)
        for key, value in (self.model_extra or {}).items():
            if key not in allowed:
                there_are = ", ".join(allowed)
                raise problem(f"optimizer.{key}", f"{self.name} has no setting {key!r}; it has {there_are}")
            if (wanted := _unlike(allowed[key], value)) is not None:
                raise problem(f"optimizer.{key}", f"optimizer.{key} must be {wanted}, not {value!r}")
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments for the constructor."""
        return {k: tuple(v) if isinstance(v, list) else v for k, v in (self.model_extra or {}).items()}


class DataConfig(Section):
    """What is learnt, and in which portions."""

    name: str = Field(
        default="mnist1d", description="mnist1d, mnist, fashion-mnist, cifar10, or the path of a .npz file"
    )
    root: str | None = Field(
        default=None, description="folder of the data sets; else SMGOPT_DATA, else the user's cache"
    )
    holdout: Number = Field(
        default=0.0, ge=0, lt=1, description="test on this fraction of the training data instead"
    )
    batch: int = Field(default=1000, ge=1, le=10**9, description="samples of a mini-batch")
    drop_last: bool = Field(default=True, description="leave out the last, incomplete mini-batch of an epoch")

    @field_validator("name")
    @classmethod
    def _from_anywhere(cls, name: str) -> str:
        """A path means the same file wherever the run is continued from."""
        path = ("/" in name or name.endswith(".npz")) and not name.startswith("~")
        return str(Path(name).absolute()) if path else name


class RunConfig(Section):
    """When to stop, what to record. Whichever of the limits comes first ends the run."""

    seed: int = Field(
        default=0, ge=0, lt=2**32, description="of the initial weights and of the order of the data"
    )
    cycles: int | None = Field(
        default=None, ge=1, description="stop after so many cycles; 300 if no limit is given"
    )
    epochs: Number | None = Field(default=None, gt=0, le=1e9, description="stop after so many epochs")
    target_accuracy: Number | None = Field(
        default=None, gt=0, le=1, description="stop when an evaluation of the finest level reaches it"
    )
    evaluate: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="cycles between evaluations; auto: at most 5 % of the work"
    )
    checkpoint: Number = Field(
        default=30.0, ge=0, description="seconds between checkpoints; 0: after every cycle"
    )
    threads: int | None = Field(
        default=None, ge=1, le=4096, description="torch's threads; the last bits may depend on them"
    )
    tensorboard: bool = Field(default=False, description="write event files for TensorBoard")

    @model_validator(mode="before")
    @classmethod
    def _with_a_limit(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("cycles") is None and given.get("epochs") is None:
            return {**given, "cycles": 300}
        return given


def _optimizer_kind(given: Any) -> str:
    name = given.get("name", "smgopt") if isinstance(given, dict) else getattr(given, "name", "smgopt")
    return "smgopt" if name == "smgopt" or not isinstance(name, str) else "torch"


def _network_kind(given: Any) -> str:
    kind = given.get("kind", "resnet") if isinstance(given, dict) else getattr(given, "kind", "resnet")
    return kind if kind in NETWORKS else "resnet"


#: A network's section, told by its kind.
Network = Annotated[
    Annotated[ResNetConfig, Tag("resnet")] | Annotated[ConvResNetConfig, Tag("convresnet")],
    Discriminator(_network_kind),
]


class Config(Section):
    """Everything that decides what a run does.

    Example:
        >>> Config.model_validate({"network": {"depth": 64}}).hierarchy.levels
        4
    """

    network: Network = ResNetConfig()
    hierarchy: HierarchyConfig = HierarchyConfig()
    optimizer: Annotated[
        Annotated[SMGOptConfig, Tag("smgopt")] | Annotated[TorchConfig, Tag("torch")],
        Discriminator(_optimizer_kind),
    ] = SMGOptConfig()
    data: DataConfig = DataConfig()
    run: RunConfig = Field(default_factory=lambda: RunConfig.model_validate({}))

    @model_validator(mode="after")
    def _fits_together(self) -> "Config":
        from smgopt.lab.build import rehearse

        rehearse(self)
        return self

    def tree(self) -> dict[str, dict[str, Any]]:
        """The settings by section, without those that are not set: what a TOML file holds."""
        return self.model_dump(exclude_none=True)

    def identity(self) -> dict[str, dict[str, Any]]:
        """The settings that the numbers of a run depend on.

        The others, how long to go on and where things lie, may change when a run is continued.
        """
        tree = self.tree()
        for section, key in CONTINUING:
            tree[section].pop(key, None)
        return tree


#: The settings that may change when a run is continued.
CONTINUING = (
    ("run", "cycles"),
    ("run", "epochs"),
    ("run", "target_accuracy"),
    ("run", "checkpoint"),
    ("run", "threads"),
    ("run", "tensorboard"),
    ("data", "root"),
)

# SparseAdam takes sparse gradients only, Muon matrices only; these networks have neither.
_NOT_FOR_US = {"Optimizer", "SparseAdam", "Muon"}

# How a step is executed, not what it computes; and climbing instead of descending is of no use here.
_NOT_SETTINGS = {"params", "foreach", "fused", "capturable", "differentiable", "maximize"}


def baselines() -> dict[str, Any]:
    """The optimizers of torch by their names in small letters."""
    from torch import optim

    return {
        name.lower(): member
        for name, member in vars(optim).items()
        if inspect.isclass(member) and issubclass(member, optim.Optimizer) and name not in _NOT_FOR_US
    }


def arguments_of(name: str, all_of_them: bool = False) -> dict[str, Any]:
    """The keyword arguments of a torch optimizer with their defaults.

    Args:
        name: a key of ``baselines()``.
        all_of_them: also those whose default is None or another thing that no file can hold.

    Example:
        >>> arguments_of("sgd")["momentum"]
        0
    """
    defaults = {
        key: list(p.default) if isinstance(p.default, tuple) else p.default
        for key, p in inspect.signature(baselines()[name]).parameters.items()
        if key not in _NOT_SETTINGS
    }
    return {key: value for key, value in defaults.items() if all_of_them or _fits_in_a_file(value)}


def _fits_in_a_file(value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return all(isinstance(part, bool | int | float | str) for part in parts)


def _unlike(default: Any, value: Any) -> str | None:
    """What kind of value the default asks for, if this one is of another kind."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, int | float):
        return None if number else "a number"
    if isinstance(default, list):
        fits = isinstance(value, list | tuple) and len(value) == len(default)
        return None if fits else f"a list of {len(default)} numbers"
    return None
