"""What one array library can compute on, printed as JSON: `python -m flatout.workers.device_probe
jax`.

Run as another process, so that the one that asks holds no device, and a driver that crashes takes
nobody along.
"""

import json
import os
import sys
from typing import Any


def describe_gpu(
    name: str, kind: str, build: str, total: int | None, free: int | None
) -> dict[str, Any]:
    """One accelerator, as `devices.Gpu` wants it."""
    return {"name": name, "kind": kind, "build": build, "total_bytes": total, "free_bytes": free}


def find_jax_gpus() -> list[dict[str, Any]]:
    """Accelerators on which JAX can add two numbers."""
    import jax
    import jax.numpy as jnp

    found = []
    for device in jax.devices():
        if device.platform == "cpu":
            continue
        with jax.default_device(device):
            (jnp.ones(1) + 1).block_until_ready()
        stats = device.memory_stats() or {}
        total = stats.get("bytes_limit")
        free = None if total is None else total - stats.get("bytes_in_use", 0)
        build = jax.devices()[0].client.platform_version.splitlines()[0]
        found.append(describe_gpu(device.device_kind, "cuda", build=build, total=total, free=free))
    return found


def find_torch_gpus() -> list[dict[str, Any]]:
    """Accelerators on which PyTorch can add two numbers; a ROCm build calls its GPUs cuda too."""
    import torch

    build = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    found = []
    for index in range(torch.cuda.device_count()):
        (torch.ones(1, device=f"cuda:{index}") + 1).cpu()
        free, total = torch.cuda.mem_get_info(index)
        found.append(
            describe_gpu(
                torch.cuda.get_device_name(index), "cuda", build=build, total=total, free=free
            )
        )
    if torch.backends.mps.is_available():
        (torch.ones(1, device="mps") + 1).cpu()
        total = torch.mps.recommended_max_memory()
        found.append(
            describe_gpu(
                "Apple GPU",
                "mps",
                build="Metal",
                total=total,
                free=total - torch.mps.driver_allocated_memory(),
            )
        )
    return found


def main() -> None:
    """Print what was found, or why nothing could be."""
    try:
        answer: dict[str, Any] = {
            "gpus": find_jax_gpus() if sys.argv[1] == "jax" else find_torch_gpus(),
            "trouble": None,
        }
    except Exception as error:  # whatever a driver throws is what the user needs to know
        answer = {"gpus": [], "trouble": f"{type(error).__name__}: {error}".splitlines()[0]}
    sys.stdout.write("\n" + json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # some drivers crash on the way out


if __name__ == "__main__":
    main()
