"""`bench`: speed and memory of a quantized checkpoint beside its original, measured in turn in one process.

That process is a child: what it needs in its environment must be there before torch is imported, and a processor that lacks an instruction
kills it. The parent imports neither torch nor transformers.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from laaciq import errors
from laaciq.engine.progress import Silence
from laaciq.errors import BadOption, LaaciqError, TooLittleMemory
from laaciq.options import REFERENCE, Options

if TYPE_CHECKING:
    import torch

    from laaciq.models import LanguageModel
    from laaciq.planning import TensorPlan

ROUNDS = 5
# Loading, a warm-up and the rounds, for both models.
_STEPS = 2 * (1 + 1 + ROUNDS)
# With more than this, oneDNN runs instructions in bfloat16 that some machines announce and do not have.
_SAFE_BFLOAT16 = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


class BenchOptions(Options):
    """What both models are given to do."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="float32, bfloat16 or float16; auto is float32 on a CPU, bfloat16 on CUDA."
    )
    prompt_tokens: int = Field(default=128, ge=1, description="Tokens of a prompt.")
    new_tokens: int = Field(default=64, ge=2, description="Tokens that are generated after it.")
    batch: int = Field(default=1, ge=1, description="Prompts at a time.")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Measured(_Strict):
    """One model. Speeds are tokens a second over the whole batch; a masked model decodes nothing.

    `weight_bytes` counts parameters and buffers as they lie in memory, and what kernels hold beside them; `peak_bytes` is the most that was
    allocated on CUDA for this model, None on a CPU.
    """

    model: str
    prefill: float
    decoding: float | None
    weight_bytes: int
    peak_bytes: int | None


class Ratios(_Strict):
    """Quantized over original: above 1 is faster, or larger."""

    prefill: float
    decoding: float | None
    weight_bytes: float
    peak_bytes: float | None


class Kernels(_Strict):
    """How many quantized layers run on int4 kernels, how many on dequantized weights, and `reasons` for the latter with their numbers."""

    int4: int
    dequantized: int
    reasons: dict[str, int]


class Bench(_Strict):
    """Speeds are medians of `rounds` after a warm-up. `kernels` is None where the checkpoint is not one of ours."""

    options: BenchOptions
    device: str
    dtype: str
    threads: int
    rounds: int
    original: Measured
    quantized: Measured
    ratios: Ratios
    kernels: Kernels | None


class _Request(_Strict):
    """What the parent asks of the child."""

    checkpoint: str
    against: str
    device: str
    options: BenchOptions


def bench(
    checkpoint: str | Path,
    *,
    against: str | Path | None = None,
    device: str = "auto",
    progress: Silence | None = None,
    **options: object,
) -> Bench:
    """Speed and memory of `checkpoint` and of its original; options as in `BenchOptions`.

    Without `against` the original is what the run that wrote the checkpoint was given.
    """
    asked = BenchOptions.of(**options)
    original = against or _recorded_original(Path(checkpoint))
    if original is None:
        raise BadOption(f"{checkpoint} does not say what it was made from: give the original with --against")
    request = _Request(checkpoint=str(checkpoint), against=str(original), device=device, options=asked)
    return _ask_child(request, progress or Silence())


def _recorded_original(checkpoint: Path) -> str | None:
    """A run notes its command above its checkpoints; the model is its first word, left out where it is the reference."""
    for folder in checkpoint.absolute().parents[:2]:
        try:
            command = json.loads((folder / "run.json").read_text(encoding="utf-8"))["command"]
        except (OSError, ValueError, KeyError):
            continue
        match shlex.split(command):
            case ["laaciq", "run", model, *_] if not model.startswith("--"):
                return model
            case ["laaciq", "run", *_]:
                return REFERENCE
    return None


# The parent's side


def _ask_child(request: _Request, progress: Silence) -> Bench:
    """Start the child, follow its progress, and hand on its result or its error."""
    environment = dict(os.environ)
    if request.options.dtype == "bfloat16" and request.device != "cuda":
        environment = _SAFE_BFLOAT16 | environment
    command = [sys.executable, "-m", "laaciq.benchmark", request.model_dump_json()]
    # What libraries print to standard error is told only if the child fails.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, env=environment, text=True) as child,
    ):
        try:
            answer = _follow(child, progress)
        finally:
            child.kill()
        if "result" in answer:
            return Bench.model_validate(answer["result"])
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["message"])
        complaints.seek(0)
        raise _death(child.returncode, complaints.read(), request.options.dtype)


def _follow(child: subprocess.Popen[str], progress: Silence) -> dict[str, Any]:
    """The child's last answer; empty if it died before."""
    answers = (json.loads(line) for line in child.stdout or ())
    answer: dict[str, Any] = next(answers, {})
    if "step" in answer:
        with progress.stage("loading and measuring", _STEPS) as advance:
            for answer in answers:
                if "step" not in answer:
                    return answer
                advance(1)
            answer = {}
    if not answer:
        child.wait()
    return answer


def _death(status: int, complaints: str, dtype: str) -> LaaciqError:
    """What a child that ended without an answer died of."""
    if status == -signal.SIGILL:
        return BadOption(f"this processor lacks an instruction that {dtype} needs here: give --dtype float32")
    if status == -signal.SIGKILL:
        return TooLittleMemory(
            "the measurement was killed, most likely for lack of memory: take a smaller batch or model"
        )
    if status < 0:
        name = signal.Signals(-status).name
        return LaaciqError(f"the measurement died of {name}: try --dtype float32 or --device cpu")
    reason = complaints.strip().rpartition("\n")[2] or f"exit status {status}"
    return LaaciqError(f"the measurement failed ({reason}): try --dtype float32 or --device cpu")


# The child's side


def _answer_parent() -> None:
    """Do what the first argument asks; answer in lines of JSON on what was standard output, where libraries no longer print."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        found = _measure_both(_Request.model_validate_json(sys.argv[1]), lambda: _send(answers, {"step": 1}))
        _send(answers, {"result": found.model_dump()})
    except LaaciqError as error:
        _send(answers, {"error": type(error).__name__, "message": str(error)})


def _send(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")


def _measure_both(request: _Request, step: Callable[[], None]) -> Bench:
    import torch

    from laaciq.models import find_model, load
    from laaciq.models.loading import pick_device

    options = request.options
    place = pick_device(request.device)
    name = options.dtype if options.dtype != "auto" else "bfloat16" if place.type == "cuda" else "float32"
    folders = [find_model(source) for source in (request.against, request.checkpoint)]
    step()
    subjects = []
    for folder in folders:
        subjects.append(_Subject(load(folder, device=place.type, dtype=getattr(torch, name)), options))
        step()
    _require_pair(*subjects)
    ids = torch.randint(min(s.model.vocabulary for s in subjects), (options.batch, options.prompt_tokens))
    for _ in range(1 + ROUNDS):
        for subject in subjects:
            subject.run(ids.to(place))
            step()
    original, quantized = (subject.measured() for subject in subjects)
    return Bench(
        options=options,
        device=torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
        dtype=name,
        threads=torch.get_num_threads(),
        rounds=ROUNDS,
        original=original,
        quantized=quantized,
        ratios=_ratios(original, quantized),
        kernels=_kernels(subjects[1].model, getattr(torch, name)),
    )


class _Subject:
    """A loaded model with what its rounds took; the first is the warm-up."""

    def __init__(self, model: LanguageModel, options: BenchOptions) -> None:
        longest, wanted = model.longest, options.prompt_tokens + options.new_tokens
        if longest is not None and wanted > longest:
            raise BadOption(
                f"{options.prompt_tokens} tokens of prompt and {options.new_tokens} new ones are {wanted}, "
                f"{model.folder.name} takes {longest}: ask for fewer"
            )
        self.model, self.options = model, options
        self.prefill_seconds: list[float] = []
        self.decoding_seconds: list[float] = []
        self.peaks: list[int] = []

    def run(self, ids: torch.Tensor) -> None:
        import torch

        place = self.model.device
        others = 0
        if place.type == "cuda":
            # The other model lies there too, and does not count.
            others = torch.cuda.memory_allocated(place) - _weight_bytes(self.model.module)
            torch.cuda.reset_peak_memory_stats(place)
        prefill, decoding = self._timed(ids)
        self.prefill_seconds.append(prefill)
        self.decoding_seconds.append(decoding)
        if place.type == "cuda":
            self.peaks.append(torch.cuda.max_memory_allocated(place) - others)

    def _timed(self, ids: torch.Tensor) -> tuple[float, float]:
        """Seconds up to the first new token, and from there to the last."""
        import torch

        module, clock = self.model.module, _clock(self.model.device)
        mask = torch.ones_like(ids)
        began = clock()
        with torch.no_grad():
            if self.model.kind == "masked":
                module(input_ids=ids, attention_mask=mask)
                return clock() - began, 0.0
            ends: list[float] = []

            def note(tokens: torch.Tensor, scores: torch.Tensor, **other: Any) -> torch.Tensor:
                ends.append(clock() if len(ends) in (0, self.options.new_tokens - 1) else 0.0)
                return torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)

            _generate(module, ids, mask, self.options.new_tokens, note)
        return ends[0] - began, ends[-1] - ends[0]

    def measured(self) -> Measured:
        prefill = statistics.median(self.prefill_seconds[1:])
        decoding = statistics.median(self.decoding_seconds[1:])
        generated = self.options.batch * (self.options.new_tokens - 1)
        return Measured(
            model=self.model.folder.name,
            prefill=self.options.batch * self.options.prompt_tokens / prefill,
            decoding=None if self.model.kind == "masked" else generated / decoding,
            weight_bytes=_weight_bytes(self.model.module),
            peak_bytes=max(self.peaks[1:]) if self.peaks else None,
        )


def _generate(module: Any, ids: torch.Tensor, mask: torch.Tensor, new_tokens: int, note: Callable[..., Any]) -> None:
    """Greedy, and exactly so many tokens: no end token, and none of the checkpoint's own settings such as beams."""
    from transformers import GenerationConfig, StoppingCriteriaList

    plain = GenerationConfig.from_model_config(module.config)
    plain.update(do_sample=False, num_beams=1, max_new_tokens=new_tokens, max_length=None, pad_token_id=0)
    plain.eos_token_id = None
    module.generation_config = plain
    module.generate(ids, attention_mask=mask, stopping_criteria=StoppingCriteriaList([note]))


def _clock(place: torch.device) -> Callable[[], float]:
    import torch

    def now() -> float:
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        return time.perf_counter()

    return now


def _weight_bytes(module: torch.nn.Module) -> int:
    from laaciq.quantization.layers import QuantizedLinear

    held = [*module.parameters(), *module.buffers()]
    for layer in module.modules():
        if isinstance(layer, QuantizedLinear):
            held += layer.kernel_grids.values()
    return sum(tensor.numel() * tensor.element_size() for tensor in held)


def _ratios(original: Measured, quantized: Measured) -> Ratios:
    def ratio(mine: float | None, base: float | None) -> float | None:
        return None if mine is None or base is None else mine / base

    return Ratios(
        prefill=quantized.prefill / original.prefill,
        decoding=ratio(quantized.decoding, original.decoding),
        weight_bytes=quantized.weight_bytes / original.weight_bytes,
        peak_bytes=ratio(quantized.peak_bytes, original.peak_bytes),
    )


def _require_pair(original: _Subject, quantized: _Subject) -> None:
    kinds = original.model.kind, quantized.model.kind
    if kinds[0] != kinds[1]:
        names = original.model.folder.name, quantized.model.folder.name
        raise BadOption(f"{names[1]} is {kinds[1]}, {names[0]} is {kinds[0]}: give the model that it was made from")


def _kernels(model: LanguageModel, dtype: torch.dtype) -> Kernels | None:
    from laaciq.quantization.layers import QuantizedLinear

    layers = [layer for layer in model.module.modules() if isinstance(layer, QuantizedLinear)]
    if not layers:
        return None
    dequantized = [layer for layer in layers if not layer.on_int4]
    reasons = Counter(why_dequantized(layer.plan, dtype) for layer in dequantized)
    return Kernels(int4=len(layers) - len(dequantized), dequantized=len(dequantized), reasons=dict(reasons))


def why_dequantized(plan: TensorPlan, dtype: torch.dtype) -> str:
    """What keeps a layer off the int4 kernels, in words; what lies in the checkpoint goes before what was asked for this run."""
    import torch

    from laaciq.quantization.layers import runs_on_int4

    if plan.bits != 4:
        return f"4-bit kernels need 4-bit codes; these have {plan.bits}"
    if plan.kept:
        return f"4-bit kernels keep no weights in 16 bits; {plan.keep:g} % are kept here"
    # On a CPU, in bfloat16, only shapes are left to stand in the way.
    if not runs_on_int4(plan, torch.bfloat16, torch.device("cpu")):
        outputs, inputs = plan.shape
        return f"4-bit kernels do not fit groups of {plan.group_inputs} in a layer of {outputs}×{inputs} weights"
    if dtype != torch.bfloat16:
        return f"4-bit kernels need bfloat16; {str(dtype).removeprefix('torch.')} was asked"
    return "4-bit kernels need a GPU of compute capability 8.0 or more"


if __name__ == "__main__":
    _answer_parent()
