"""Seams: every place where the pass reaches into torch, triton or vLLM to stand in for a GPU that is not there.

A seam is one named function with the reason it exists. It may replace an attribute only through `Bench.replace`, which fails
by name (“seam X does not fit vLLM Y”) when upstream has moved it. The stages run in the order in which a vLLM worker process
meets them:

    driver   before `import torch`       libcuda, NVML
    torch    after `import torch`        torch.cuda, torch.accelerator, Triton's driver, Inductor, FakeTensorMode
    vllm     after `import vllm`         distributed world, weights, pinned memory, kernels without fake implementations
"""

from warmstart.compiler.seams.base import Bench, Seam, seams_of, stage

__all__ = ["Bench", "Seam", "seams_of", "stage"]
