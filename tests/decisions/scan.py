"""Find where vLLM asks the machine that it runs on: its device, its packages, its tools, its network, its environment.

Source is read, nothing of vLLM is imported. Each finding is a line that says what was asked:

    device torch.cuda.get_device_capability      of the GPU or the platform; by whom does not matter, a seam answers for all
    package flashinfer_cubin                     whether, or in which version, a package is installed
    environment CUDA_HOME                        a variable that vllm.envs does not declare
    machine utils/mem_utils.py psutil.virtual_memory      anything else, with the file that asks
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_DEVICE = re.compile(r"^(torch\.(cuda|accelerator|version)|current_platform|pynvml|torch\._C\._cuda\w*)(\.\w+)?$")
_MACHINE = frozenset(
    [
        "shutil.which",
        "which",
        "shutil.disk_usage",
        "os.cpu_count",
        "multiprocessing.cpu_count",
        "cpu_count",
        "os.sched_getaffinity",
        "os.getloadavg",
        "os.uname",
        "requests.get",
        "requests.head",
        "urllib.request.urlopen",
        "urlopen",
        "cpuinfo.get_cpu_info",
        "ctypes.CDLL",
        "ctypes.util.find_library",
        "find_library",
    ]
)
_MACHINE_MODULES = re.compile(r"^(psutil|platform|subprocess|socket|resource)\.\w+$")
_PLATFORM = frozenset(["machine", "system", "processor", "node", "release", "version", "uname", "python_version", "libc_ver"])
_PACKAGE = frozenset(
    [
        "find_spec",
        "importlib.util.find_spec",
        "_has_module",
        "_has_module_spec",
        "importlib.metadata.version",
        "metadata.version",
        "version",
        "_installed_version",
        "is_vllm_tgt_package_available",
        "PlaceholderModule",
    ]
)
_ENVIRONMENT = frozenset(["os.environ.get", "os.getenv", "os.environ.setdefault", "environ.get", "getenv"])
_WORTH_PARSING = re.compile(
    r"torch\.(cuda|accelerator|version|_C\._cuda)|current_platform\.|pynvml|which\(|cpu_count|psutil|platform\.|subprocess|socket\."
    r"|requests\.|urlopen|find_spec|_has_module|metadata|environ|getenv|CDLL|find_library|disk_usage|PlaceholderModule|_installed_version"
    r"|sched_getaffinity|resource\."
)


def findings(root: Path, outside: tuple[str, ...]) -> dict[str, set[str]]:
    """Return what is asked below `root` (the package's folder), each with the files that ask; `outside` are paths left out."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root).as_posix()
        if file.startswith(outside):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if _WORTH_PARSING.search(text):
            for line in _of_file(file, ast.parse(text)):
                found.setdefault(line, set()).add(file)
    return found


def _of_file(file: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name = _dotted(node)
            if _DEVICE.match(name):
                yield f"device {name}"
            elif _MACHINE_MODULES.match(name) and _is_query(name):
                yield f"machine {file} {name}"
        elif isinstance(node, ast.Call):
            yield from _of_call(file, node)
        elif isinstance(node, ast.Subscript) and _dotted(node.value) in {"os.environ", "environ"}:
            if isinstance(node.ctx, ast.Load):
                yield f"environment {_literal(node.slice)}"
        elif isinstance(node, ast.Compare) and any(_dotted(side) == "os.environ" for side in node.comparators):
            yield f"environment {_literal(node.left)}"


def _of_call(file: str, node: ast.Call) -> Iterator[str]:
    name = _dotted(node.func)
    first = _literal(node.args[0]) if node.args else "?"
    if name in _PACKAGE and not (name == "version" and first == "?"):
        yield f"package {first if first != '?' else f'? in {file}'}"
    elif name in _ENVIRONMENT:
        yield f"environment {first if first != '?' else f'? in {file}'}"
    elif name in _MACHINE:
        yield f"machine {file} {name}"


def _is_query(name: str) -> bool:
    module, _, attribute = name.partition(".")
    if module == "platform":
        return attribute in _PLATFORM
    if module == "socket":
        return attribute in {"gethostname", "getfqdn", "gethostbyname", "getaddrinfo", "create_connection"}
    if module == "subprocess":
        return attribute in {"run", "Popen", "check_output", "check_call", "getoutput"}
    if module == "resource":
        return attribute in {"getrlimit"}
    return True


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _literal(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "?"
