"""How fast `scan_weights` reads a checkpoint, beside a plain read of the same files, and how much memory it takes.

    python -m benchmarks.scan                  # 0.5 GB of bfloat16
    python -m benchmarks.scan --size-gb 4
    python -m benchmarks.scan --dtype float32

Both run in one process on one core with the files in the page cache, in turn; the plain read goes through a buffer of 1 MiB. Throughput is
by CPU time, system included, so that other programs on the machine count as little as they can; the ratio printed is of medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from laaciq.models import ModelFolder
from laaciq.profiling.weights import scan_weights

GB = 10**9
# As in models of 7 billion weights; the largest has 64 MiB in 16 bits.
SHAPES = [(4096, 8192), (4096, 4096), (1024, 4096)]
SHARD_BYTES = GB
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
MEMORY_TARGET_MB = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size-gb", type=float, default=0.5)
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Each in a separate process: a process starts with the peak memory of the one that started it.
        _apart(_write, Path(folder), options.size_gb * GB, DTYPES[options.dtype])
        _apart(_measure, Path(folder), options.rounds)


def _apart(work: Callable[..., None], *arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def _write(folder: Path, size: float, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(0)
    (folder / "config.json").write_text("{}")
    written = 0
    while written < size:
        shard: dict[str, torch.Tensor] = {}
        end = min(size, written + SHARD_BYTES)
        while written < end:
            tensor = (0.02 * torch.randn(SHAPES[len(shard) % len(SHAPES)], generator=random)).to(dtype)
            shard[f"{written}.weight"] = tensor
            written += tensor.nbytes
        save_file(shard, folder / f"model-{written:015d}.safetensors")


def _measure(path: Path, rounds: int) -> None:
    torch.set_num_threads(1)
    folder = ModelFolder("benchmark", path)
    size = sum(path.stat().st_size for path in folder.weight_files)
    _plain_read(folder)
    at_start = _peak_mb()
    scan_weights(folder)  # compiles
    plain, scan = [], []
    for _ in range(rounds):
        plain.append(size / GB / _seconds(lambda: _plain_read(folder)))
        scan.append(size / GB / _seconds(lambda: scan_weights(folder)))
    print(f"{size / GB:.2f} GB in {len(folder.weight_files)} shards, {rounds} rounds on one core")
    print(f"plain read    {_summary(plain)}")
    print(f"scan_weights  {_summary(scan)}")
    print(f"ratio         {statistics.median(scan) / statistics.median(plain):.2f} (target 0.30 for 16 bits)")
    print(f"peak memory   {_peak_mb():.0f} MB, of it {at_start:.0f} MB before the scan (target {MEMORY_TARGET_MB} MB)")


def _plain_read(folder: ModelFolder) -> None:
    buffer = memoryview(bytearray(2**20))
    for path in folder.weight_files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _summary(throughputs: list[float]) -> str:
    return f"{statistics.median(throughputs):.2f} GB/s (best {max(throughputs):.2f})"


def _peak_mb() -> float:
    # On Linux in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 10**6


if __name__ == "__main__":
    main()
