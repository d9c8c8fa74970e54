"""Options with their defaults, in one place: the command line and Python use the same words. Imports nothing heavy."""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from laaciq.errors import BadOption

REFERENCE = "reference"
BUILTIN = "builtin"
# What config.json of our checkpoints says, and transformers finds us by.
CHECKPOINT_METHOD = "laaciq"
BITS = (2, 3, 4, 6, 8)
# Of scales, of kept weights, and of everything that is not quantized.
FULL_BITS = 16
# Most that may be kept in 16 bits, in percent: beyond it more bits for all weights are cheaper.
MOST_KEPT = 10.0
# κ above which a block is an outlier block.
OUTLIER_KURTOSIS = 50.0


def _offered(bits: int) -> int:
    if bits not in BITS:
        raise BadOption(f"{bits} bits are not offered: give one of {', '.join(map(str, BITS))}")
    return bits


def _positive(size: int | str) -> int | str:
    if isinstance(size, int) and size < 1:
        raise BadOption(f"group size {size} is out of range: give a positive number, 'channel' or 'tensor'")
    return size


def _keepable(percent: float) -> float:
    if not 0 <= percent <= MOST_KEPT:
        raise BadOption(f"{percent:g} % of the weights cannot be kept: give 0 to {MOST_KEPT:g}")
    return percent


# What plans are made for; see laaciq.planning.objectives.
Objective = Literal["worst", "worst-quarter", "disparity", "mean"]
# How much time planning may take: for a first look, or for what is shipped.
Effort = Literal["fast", "full"]
# Where a checkpoint is to run: here, or under the rules of a serving engine.
Runtime = Literal["laaciq", "vllm"]

Bits = Annotated[int, AfterValidator(_offered)]
KeptPercent = Annotated[float, AfterValidator(_keepable)]
GroupSize = Annotated[int | Literal["channel", "tensor"], AfterValidator(_positive)]


class Options(BaseModel):
    """Strict: an unknown word is an error that names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, **values: Any) -> Self:
        for name in values:
            if name not in cls.model_fields:
                near = difflib.get_close_matches(name, cls.model_fields, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(cls.model_fields)}"
                raise BadOption(f"unknown option {name!r}: {hint}")
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            raise BadOption(f"option {first['loc'][0]!r} cannot be {first['input']!r}: {first['msg']}") from None


class MeasureOptions(Options):
    """How passages are put to the models, and when a language counts as served."""

    window: int | None = Field(default=None, description="Most tokens in one pass; longer passages slide.")
    chat: bool = Field(default=False, description="Score through the model's chat template.")
    served_bound: float = Field(default=4.0, description="Original bits a byte above which a language is not served.")
    seed: int = Field(default=0, description="Of splits and resampling.")


class GridOptions(Options):
    """The grid that weights are rounded to."""

    bits: Bits = Field(default=4, description="2, 3, 4, 6 or 8.")
    group_size: GroupSize = Field(default=64, description="Inputs that share a scale: a number, 'channel' or 'tensor'.")
    symmetric: bool = Field(default=True, description="Kind of grid.")


class MixtureOptions(GridOptions):
    """What `laaciq mixture` tries: mixes of languages, and numbers of passages beside all of them."""

    symmetric: bool = Field(default=False, description="Kind of grid.")
    only: str = Field(default="eng", description="The language of the mix of one language only.")
    rounds: int = Field(default=3, ge=0, description="Rounds of minimax weights, at most.")
    passages: tuple[int, ...] = (1, 2, 5, 10)
    # None: the worst two when all languages count equally.
    leave_out: tuple[str, ...] | None = None

    @field_validator("passages")
    @classmethod
    def _positive(cls, passages: tuple[int, ...]) -> tuple[int, ...]:
        if wrong := [number for number in passages if number < 1]:
            raise BadOption(f"{wrong[0]} passages are no text to calibrate on: give 1 or more")
        return passages


class ExportOptions(MeasureOptions):
    """What `laaciq export` takes: whether it may change what a format cannot carry, and how that is measured."""

    fold: bool = Field(default=False, description="Store what the format cannot carry in 16 bits, with shared scales.")
    passages: int = Field(default=12, ge=1, description="Test passages a language to measure folding on.")


_METHOD = "How weights become codes; 'laaciq methods' lists them."


class QuantizeOptions(GridOptions):
    """How weights are stored: a method, its grid, and what is spared."""

    method: str = Field(default="rtn", description=_METHOD)
    plan: str | None = Field(
        default=None, description="A file made by 'laaciq plan', perhaps edited, to be used instead of a method."
    )
    keep: KeptPercent = Field(default=0.0, description="Percentage of weights that stay in 16 bits.")
    keep_by: Literal["magnitude", "saliency"] = Field(
        default="magnitude", description="magnitude |w|, or saliency |w|·√E(x²)."
    )
    protect: tuple[str, ...] = Field(
        default=(), description="Blocks: '0,11', or for some languages 'swa+yor=3,4'; repeatable."
    )
    protect_bits: Literal[8, 16] = Field(default=16, description="Bits of protected blocks: 8 or 16.")
    outlier_bits: Bits | None = Field(
        default=None, description="Bits of blocks whose kurtosis is above --outlier-kurtosis."
    )
    outlier_kurtosis: float = Field(default=OUTLIER_KURTOSIS, description="κ above which --outlier-bits apply.")
    outlier_by: Literal["block", "component"] = Field(
        default="block", description="What κ is pooled over: block or component."
    )
    attention_bits: Bits | None = Field(default=None, description="Bits of attention projections, at least.")
    embedding_bits: Bits | None = Field(default=None, description="Bits of embeddings and head; 16 where not given.")
    rank: int = Field(default=0, ge=0, description="Rank of a 16-bit correction of every quantized layer; 0 is none.")
    tune: int | None = Field(
        default=None,
        ge=0,
        description="Epochs of tuning scales and norms towards the original's predictions; none, or what a planned method's effort allows.",
    )
    table_overhead: float = Field(default=0.5, description="What language tables may cost, in bits a weight.")
    calibrate: tuple[str, ...] | None = Field(
        default=None, description="Languages whose calibration text decides, for example 'eng'; all that are served."
    )
    budget: float | None = Field(
        default=None,
        gt=0,
        description="Bits a weight that a plan may take; what the grid of --bits takes if not given.",
    )
    budget_for: Literal["blocks", "model"] = Field(
        default="blocks", description="What the budget is for: linear layers of the blocks, or the whole model."
    )
    objective: Objective = Field(
        default="worst", description="What a plan makes small: worst, worst-quarter, disparity or mean."
    )
    language_weight: tuple[str, ...] = Field(
        default=(), description="What a language counts for the mean: 'swa=3'; repeatable, others count 1."
    )
    hold_out: tuple[str, ...] | None = Field(
        default=None, description="Languages that planning may not see, for example 'swa,tam'; they are measured."
    )
    effort: Effort = Field(default="fast", description="Of planning: fast or full.")
    runtime: Runtime = Field(default="laaciq", description="Plan only what this runtime loads: laaciq or vllm.")
    separate: bool = Field(
        default=False, description="A checkpoint for every language, or for every group of --protect."
    )

    def quantizing(self) -> QuantizeOptions:
        """The part of the options that decides the weights."""
        return QuantizeOptions(**self.model_dump(include=set(QuantizeOptions.model_fields)))


class CheckpointOptions(MeasureOptions, QuantizeOptions):
    """What `laaciq quantize` takes: how weights are stored, and how calibration text is put to the model."""

    method: str = Field(default="planned", description=_METHOD)

    def measuring(self) -> MeasureOptions:
        """The part of the options that decides a measurement."""
        return MeasureOptions(**self.model_dump(include=set(MeasureOptions.model_fields)))


class RunOptions(CheckpointOptions):
    """What `laaciq run` takes."""

    model: str = REFERENCE
    texts: str = BUILTIN
    languages: tuple[str, ...] | None = None
    baseline: bool = Field(
        default=True, description="Beside a planned method, also measure today's default: GPTQ calibrated in English."
    )
    passages: int | None = Field(default=None, ge=1, description="Most test passages a language; all if not given.")
    generate: bool = Field(default=False, description="Also compare greedy continuations.")
    numeric_check: bool = Field(
        default=False, description="Also measure the original against itself in another precision."
    )

    @property
    def command(self) -> str:
        """The command that does the same: what differs from the defaults."""
        words = ["laaciq", "run"]
        fields = type(self).model_fields
        for name in sorted(fields, key=lambda name: name not in ("model", "texts", "languages")):
            value = getattr(self, name)
            if value == fields[name].default:
                continue
            if name == "model":
                words.append(value)
            elif name == "symmetric":
                words.append("--affine")
            elif name in ("protect", "language_weight"):  # repeated: an entry may hold commas itself
                words += [word for entry in value for word in (f"--{name.replace('_', '-')}", entry)]
            elif isinstance(value, bool):
                words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
            else:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                words += [f"--{name.replace('_', '-')}", text]
        return shlex.join(words)

    @property
    def default_folder(self) -> Path:
        grid = f"g{self.group_size}" if isinstance(self.group_size, int) else self.group_size
        name = f"{Path(self.model).name}-{self.method}-{self.bits}bit-{grid}{'' if self.symmetric else '-affine'}"
        special = self.quantizing().model_dump(
            exclude={"method", "bits", "group_size", "symmetric"}, exclude_defaults=True
        )
        # Whatever else differs from the defaults gets a folder of its own, under a name that stays the same.
        mark = hashlib.sha256(json.dumps(special, sort_keys=True).encode()).hexdigest()[:6] if special else ""
        return Path("laaciq-runs") / (f"{name}-{mark}" if mark else name)


class CompareOptions(MeasureOptions):
    """What `laaciq compare` takes."""

    model: str = REFERENCE
    texts: str = BUILTIN
    languages: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    bits: int = Field(
        default=4, ge=1, le=8, description="Of every method; one that has not got them is a row that says so."
    )
    calibration: str = Field(
        default="all",
        description="Text that methods read: a language such as 'eng', 'all', or a folder or file of texts.",
    )
    calibration_passages: int | None = Field(
        default=None,
        ge=1,
        description="Most calibration passages a language, and as many to validate; all if not given.",
    )
    passages: int | None = Field(default=None, ge=2, description="Most test passages a language; all if not given.")

    def measuring(self) -> MeasureOptions:
        """The part of the options that decides a measurement."""
        return MeasureOptions(**self.model_dump(include=set(MeasureOptions.model_fields)))

    @property
    def command(self) -> str:
        """The command that does the same: what differs from the defaults."""
        words = ["laaciq", "compare"] + ([self.model] if self.model != REFERENCE else [])
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name == "model" or value == field.default:
                continue
            word = f"--{name.replace('_', '-')}"
            words += [word] if value is True else [word, ",".join(value) if isinstance(value, tuple) else str(value)]
        return shlex.join(words)

    @property
    def default_folder(self) -> Path:
        return Path("laaciq-runs") / f"{Path(self.model).name}-compare"
