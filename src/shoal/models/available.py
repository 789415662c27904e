"""How much memory is free."""

import os
from pathlib import Path

import torch

_UNKNOWN = 4 * 2**30
"""Bytes, assumed where the system does not tell."""


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; for the processor, those that a container may still take."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [value for value in (_free_of_machine(), _free_of_container()) if value is not None]
    return min(limits, default=_UNKNOWN)


def _free_of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _free_of_container(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What the control group of this process allows, not counting files kept for convenience."""
    try:
        allowed = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        kept = dict(
            line.split() for line in (group / "memory.stat").read_text("ascii").splitlines()
        )
    except (OSError, ValueError):
        return None
    if not allowed.isdecimal():
        return None
    return max(0, int(allowed) - used + int(kept.get("inactive_file", 0)))
