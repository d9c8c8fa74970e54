"""One quantization in a process of its own, which notes the memory that it takes.

    python -m benchmarks.scale_child FIGURES GPU_CAP PINNED laaciq quantize MODEL …       # the command line
    python -m benchmarks.scale_child FIGURES GPU_CAP PINNED llmcompressor MODEL TOKENS OUT

FIGURES is a JSON file, TOKENS a safetensors file with one sequence per tensor. GPU_CAP is what torch may take of the GPU, in GiB, as if the
GPU had no more; 0 sets no bound. PINNED is 1 if the system counts pinned memory as the process's or as shared, else 0: see `counts_pinned`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from laaciq.strict import StrictModel

# Seconds between two looks at memory, and looks between two writes of the file, which a killed process leaves.
LOOK_SECONDS, LOOKS = 0.05, 40
BITS, GROUP_SIZE = 4, 64
# Growth of a peak that is printed among the progress lines, which tell the stage, and how such a line begins.
STEP_BYTES, GROWN = 2**30, "memory grew to "
# Pinned to see where the system counts such memory.
_PROBE_BYTES = 16 * 2**20


class Memory(StrictModel):
    """Peaks in bytes. `allocated` and `reserved` are torch's on the GPU: tensors, and what it took from the driver for them; the context of
    CUDA comes on top. `anonymous` is host memory apart from mapped files: the process's pages, shared ones, and pinned ones where the system
    counts them as neither. `mapped` are pages of mapped files, which the system can drop. `pinned` is the part that is pinned.
    """

    allocated: int = 0
    reserved: int = 0
    anonymous: int = 0
    mapped: int = 0
    pinned: int = 0


class MemoryWatch:
    """Looks at memory from a thread, and writes the peaks to a file."""

    def __init__(self, path: Path, *, pinned_is_counted: bool) -> None:
        self.peak = self._printed = Memory()
        self._path = path
        self._pinned_is_counted = pinned_is_counted
        self._ended = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()
        self._write()

    def _watch(self) -> None:
        looks = 0
        while not self._ended.wait(LOOK_SECONDS):
            self._look()
            looks += 1
            if looks % LOOKS == 0:
                self._write()

    def _look(self) -> None:
        now = memory_now(pinned_is_counted=self._pinned_is_counted)
        highest = {name: max(value, getattr(self.peak, name)) for name, value in now.model_dump().items()}
        self.peak = Memory(**highest)
        grown = (self.peak.allocated - self._printed.allocated, self.peak.anonymous - self._printed.anonymous)
        if max(grown) > STEP_BYTES:
            self._printed = self.peak
            device, host = (count / 2**30 for count in (self.peak.allocated, self.peak.anonymous))
            print(f"{GROWN}{device:.1f} GiB on the GPU, {host:.1f} GiB of the host", file=sys.stderr, flush=True)

    def _write(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(self.peak.model_dump_json(), encoding="utf-8")
        partial.replace(self._path)


def memory_now(*, pinned_is_counted: bool = True) -> Memory:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines if line.startswith("Rss"))
    pages = {name: int(value.split()[0]) * 1024 for name, value in fields.items()}
    anonymous = pages["RssAnon"] + pages["RssShmem"]
    cuda = torch.cuda
    if not cuda.is_initialized():
        return Memory(anonymous=anonymous, mapped=pages["RssFile"])
    stats: dict[str, int] = getattr(cuda, "host_memory_stats", dict)()
    # What it owns; earlier versions of torch call that reserved.
    pinned = stats.get("reserved_bytes.current", stats.get("allocated_bytes.current", 0))
    return Memory(
        allocated=cuda.max_memory_allocated(),
        reserved=cuda.max_memory_reserved(),
        anonymous=anonymous + (0 if pinned_is_counted else pinned),
        mapped=pages["RssFile"],
        pinned=pinned,
    )


def counts_pinned() -> bool:
    """Does /proc count pinned pages as the process's or as shared? To be asked once, before the allocator keeps pinned pages for later."""
    if not torch.cuda.is_available():
        return True
    torch.zeros(1, device="cuda")  # what comes with it is there before
    before = memory_now().anonymous
    pinned = torch.zeros(_PROBE_BYTES, dtype=torch.uint8, pin_memory=True)
    return memory_now().anonymous - before > pinned.numel() // 2


def run_laaciq(words: list[str]) -> None:
    from laaciq.cli import main as command_line

    sys.argv = ["laaciq", *words]
    command_line()


def run_llmcompressor(model: str, tokens: str, out: str) -> None:
    """GPTQ as in the library's examples, with groups as ours: the model in host memory, one block at a time on the GPU."""
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from safetensors.torch import load_file
    from torch.utils.data import DataLoader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from laaciq.engine.progress import TerminalProgress

    progress = TerminalProgress()
    with progress.stage("loading", 1):
        library_model = AutoModelForCausalLM.from_pretrained(model, dtype="auto")
        tokenizer = AutoTokenizer.from_pretrained(model)
    rows = load_file(tokens).values()
    given: Any = [{"input_ids": row[None], "attention_mask": row.new_ones(1, row.numel())} for row in rows]
    weights = QuantizationArgs(num_bits=BITS, type="int", strategy="group", group_size=GROUP_SIZE, symmetric=True)
    groups = {"group_0": QuantizationScheme(targets=["Linear"], weights=weights)}
    with progress.stage("GPTQ", 1):
        oneshot(
            model=library_model,
            processor=tokenizer,
            recipe=[GPTQModifier(config_groups=groups, ignore=["lm_head"])],
            dataset=DataLoader(given, batch_size=None),
            pipeline="sequential",
        )
    with progress.stage("writing", 1):
        library_model.save_pretrained(out, save_compressed=True)
        tokenizer.save_pretrained(out)


def main() -> None:
    figures, cap, pinned, what, *words = sys.argv[1:]
    if float(cap) and torch.cuda.is_available():
        whole = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(min(1.0, float(cap) * 2**30 / whole))
    with MemoryWatch(Path(figures), pinned_is_counted=pinned == "1"):
        if what == "laaciq":
            run_laaciq(words)
        else:
            run_llmcompressor(*words)


if __name__ == "__main__":
    main()
