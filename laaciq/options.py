"""Options with their defaults, in one place: the command line and Python use the same words. Imports nothing heavy."""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from laaciq.errors import BadOption

REFERENCE = "reference"
BUILTIN = "builtin"
BITS = (2, 3, 4, 6, 8)
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


Bits = Annotated[int, AfterValidator(_offered)]
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

    window: int | None = None
    chat: bool = False
    served_bound: float = 4.0
    seed: int = 0


class RunOptions(MeasureOptions):
    """What `laaciq run` takes."""

    model: str = REFERENCE
    texts: str = BUILTIN
    languages: tuple[str, ...] | None = None
    method: str = "rtn"
    bits: Bits = 4
    group_size: GroupSize = 64
    symmetric: bool = True
    generate: bool = False
    numeric_check: bool = False

    @property
    def command(self) -> str:
        """The command that does the same: what differs from the defaults."""
        words = ["laaciq", "run"]
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value == field.default:
                continue
            if name == "model":
                words.append(value)
            elif name == "symmetric":
                words.append("--affine")
            elif value is True:
                words.append(f"--{name.replace('_', '-')}")
            else:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                words += [f"--{name.replace('_', '-')}", text]
        return shlex.join(words)

    @property
    def default_folder(self) -> Path:
        grid = f"g{self.group_size}" if isinstance(self.group_size, int) else self.group_size
        name = f"{Path(self.model).name}-{self.method}-{self.bits}bit-{grid}{'' if self.symmetric else '-affine'}"
        return Path("laaciq-runs") / name

    def measuring(self) -> MeasureOptions:
        """The part of the options that decides a measurement."""
        return MeasureOptions(**self.model_dump(include=set(MeasureOptions.model_fields)))
