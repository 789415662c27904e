"""Exporting a large checkpoint, side by side with plain copies of as many bytes.

python benchmarks/export.py --gb 6 --blocks 16 --remove 4

Each way runs in a process of its own, by turns. The source stays in the page cache, and what was
written before is flushed and deleted first. Everything written is deleted at the end.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WIDTH, HEADS, HEAD, VOCABULARY = 4096, 32, 128, 32_000
SHARD = 1_200_000_000
POOL = 2**24


def make(folder: Path, gigabytes: float, blocks: int, width: int) -> None:
    """Write a Llama-shaped checkpoint of about so many bytes, in several files."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, LlamaConfig

    attention = width * width * 2 + width * width // 4 * 2
    rest = gigabytes * 1e9 / 2 - 2 * VOCABULARY * width
    inner = max(256, int((rest / blocks - attention) / (3 * width)) // 256 * 256)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=blocks,
        num_attention_heads=width // HEAD,
        num_key_value_heads=width // HEAD // 4,
        head_dim=HEAD,
        dtype="bfloat16",
        architectures=["LlamaForCausalLM"],
    )
    with torch.device("meta"):
        state = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).state_dict()
    shards: list[list[str]] = [[]]
    used = 0
    for name, tensor in state.items():
        if used and used + tensor.nbytes > SHARD:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += tensor.nbytes
    # Random numbers are drawn once; each tensor takes them from another place on.
    pool = (0.02 * torch.randn(POOL)).to(torch.bfloat16)
    weight_map = {}
    for i, names in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        tensors = {}
        for n, name in enumerate(names):
            shape = state[name].shape
            start, count = 997 * n, shape.numel()
            long = pool.repeat((start + count) // POOL + 1)[start : start + count]
            tensors[name] = (
                torch.ones(shape, dtype=torch.bfloat16)
                if "norm" in name
                else (long.reshape(shape).contiguous())
            )
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config.save_pretrained(folder)


def export(source: Path, out: Path, removed: list[int], check: str) -> dict[str, object]:
    """Export with some blocks removed."""
    from shoal.core.mask import Mask
    from shoal.models.discover import depth_of
    from shoal.models.load import load_config
    from shoal.models.source import resolve
    from shoal.surgery import checking
    from shoal.surgery.export import export_files

    if check == "from disk":
        # As if the models did not fit into memory.
        checking.free_memory = lambda device: 0
        check = "full"
    begin = time.perf_counter()
    found = resolve(str(source))
    config = load_config(found)
    mask = Mask.of(depth_of(config), removed)
    report = export_files(found, mask, out, config=config, check=check)
    return {
        "seconds": time.perf_counter() - begin,
        "bytes": report.bytes,
        "note": report.check_note,
    }


def copy(source: Path, out: Path, count: int, inside: bool) -> dict[str, object]:
    """Copy so many bytes from the source's files, through a buffer or inside the kernel."""
    from shoal.surgery.shards import CHUNK

    begin = time.perf_counter()
    out.mkdir()
    left = count
    for file in sorted(source.glob("*.safetensors")):
        size = min(left, file.stat().st_size)
        with file.open("rb") as reading, (out / file.name).open("wb") as writing:
            if inside:
                while size:
                    done = os.copy_file_range(reading.fileno(), writing.fileno(), size)
                    size, left = size - done, left - done
            else:
                while size:
                    piece = reading.read(min(CHUNK, size))
                    writing.write(piece)
                    size, left = size - len(piece), left - len(piece)
        if not left:
            break
    return {"seconds": time.perf_counter() - begin, "bytes": count}


def fingerprint(source: Path) -> dict[str, object]:
    """What applying a plan costs besides, unless --any-model is given."""
    from shoal.models.source import resolve

    begin = time.perf_counter()
    resolve(str(source)).fingerprint()
    return {"seconds": time.perf_counter() - begin}


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this benchmark needs /proc/self/status")


def child(way: str, *arguments: object) -> dict[str, float]:
    """Run one way in a process of its own."""
    os.sync()
    command = [sys.executable, __file__, "--way", way, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_way(way: str, source: str, *arguments: str) -> None:
    """The work of a child process."""
    folder = Path(source)
    if way == "export":
        out, removed, check = arguments
        found = export(folder, Path(out), list(map(int, removed.split(","))), check)
    elif way == "fingerprint":
        found = fingerprint(folder)
    elif way == "make":
        make(folder, float(arguments[0]), int(arguments[1]), int(arguments[2]))
        found = {}
    else:
        found = copy(folder, Path(arguments[0]), int(arguments[1]), way == "kernel copy")
    print(json.dumps(found | {"peak": peak()}))


def main() -> None:
    """Print one line per way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=6.0)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--remove", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where to work; the system's by default")
    parser.add_argument("--full", action="store_true", help="also check in full from the disk")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-export-", dir=given.folder) as room:
        free = shutil.disk_usage(room).free
        if free < 2.5 * given.gb * 1e9:
            raise SystemExit(f"{room} has {free / 1e9:.1f} GB free; {2.5 * given.gb} are needed")
        source, out = Path(room, "dense"), Path(room, "out")
        source.mkdir()
        child("make", source, given.gb, given.blocks, given.width)
        step = given.blocks // given.remove
        removed = ",".join(str(1 + i * step) for i in range(given.remove))
        for file in source.glob("*.safetensors"):
            with file.open("rb") as stream:
                while stream.read(2**24):
                    pass
        total = sum(f.stat().st_size for f in source.glob("*.safetensors"))
        first = child("export", source, out, removed, "structure")
        shutil.rmtree(out)
        kept = int(first["bytes"])
        print(
            f"{total / 1e9:.2f} GB, {given.blocks} blocks, without {removed}: {kept / 1e9:.2f} GB"
        )
        ways = {
            "shoal export, structure checked": ("export", source, out, removed, "structure"),
            "shoal export, unchecked": ("export", source, out, removed, "none"),
            "copy through a buffer of 8 MB": ("copy", source, out, kept),
            "copy inside the kernel": ("kernel copy", source, out, kept),
        }
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for _ in range(given.repeats):
            for name, arguments in ways.items():
                runs[name].append(child(*arguments))
                shutil.rmtree(out)
        runs["fingerprint of the source"] = [child("fingerprint", source)]
        print(f"{'':34} {'seconds':>8} {'GB/s':>6} {'peak MB':>8}   all runs")
        for name, found in runs.items():
            seconds = statistics.median(r["seconds"] for r in found)
            amount = total if "fingerprint" in name else kept
            most = max(r["peak"] for r in found) / 1e6
            times = " ".join(f"{r['seconds']:.2f}" for r in found)
            print(f"{name:34} {seconds:8.2f} {amount / seconds / 1e9:6.2f} {most:8.0f}   {times}")
        if given.full:
            full = child("export", source, out, removed, "from disk")
            print(f"checked in full: {full['seconds']:.1f} s, peak {full['peak'] / 1e6:.0f} MB, ")
            print(full["note"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--way"]:
        run_way(*sys.argv[2:])
    else:
        main()
