"""Kubernetes objects, as plain data, to the vLLM servers they run. Imports neither kubernetes nor vLLM."""

from warmstart.podspec.compile_env import changes_compilation
from warmstart.podspec.loader import load
from warmstart.podspec.request import ServeRequest, Unresolved, Workload

__all__ = ["ServeRequest", "Unresolved", "Workload", "changes_compilation", "load"]
