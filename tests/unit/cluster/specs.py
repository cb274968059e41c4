"""Workloads for tests, as an API server would hold them."""

from __future__ import annotations

from typing import Any

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "qwen3", "namespace": "serving", "annotations": {"kubectl.kubernetes.io/last-applied": "{}"}},
    "spec": {
        "selector": {"matchLabels": {"app": "qwen3"}},
        "template": {
            "metadata": {"labels": {"app": "qwen3"}},
            "spec": {
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200", "kubernetes.io/arch": "amd64"},
                "imagePullSecrets": [{"name": "registry"}],
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai:v0.33.0",
                        "command": ["vllm", "serve", "Qwen/Qwen3-0.6B"],
                        "args": ["--max-model-len", "4096"],
                        "env": [
                            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
                            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                            {"name": "LD_PRELOAD", "value": "/opt/evil.so"},
                        ],
                        "envFrom": [{"configMapRef": {"name": "settings"}}],
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    },
                    {"name": "proxy", "image": "envoy"},
                ],
            },
        },
    },
}
