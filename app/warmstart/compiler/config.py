"""From serve arguments to the configuration that a worker process of `vllm serve` holds, by vLLM's own code."""

from __future__ import annotations

import contextlib
import importlib
import io
import pickle
from typing import TYPE_CHECKING, Any

from warmstart.compiler.lines import INDEPENDENT_RANK
from warmstart.errors import ModelFilesError, UnsupportedError, UsageError, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmstart.compiler.lines import Line
    from warmstart.compiler.seams.base import Bench


def parse(line: Line, model: str, args: tuple[str, ...]) -> Any:
    """Return the namespace that `vllm serve MODEL ARGS` parses to.

    Raises:
        UsageError: vLLM's parser refuses the arguments; its own words are in the message.

    """
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    module = importlib.import_module(line.arg_parser)
    parser = module.make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    with _refusals() as said:
        try:
            namespace = parser.parse_args([model, *args])
            namespace.model = namespace.model_tag
            module.validate_parsed_serve_args(namespace)
        except SystemExit as error:
            raise UsageError(f"vllm serve does not accept these arguments: {_last_line(said)}") from error
        except (TypeError, ValueError) as error:
            raise UsageError(f"vllm serve does not accept these arguments: {shorten(error)}") from error
    return namespace


def engine_config(namespace: Any) -> Any:
    """Return the VllmConfig of the API server, made as `vllm serve` makes it (usage context included).

    Raises:
        ModelFilesError: config.json or a companion is missing, gated or broken.
        UsageError: vLLM refuses the configuration.

    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    try:
        engine_args = AsyncEngineArgs.from_cli_args(namespace)
        return engine_args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    except NotImplementedError as error:
        raise UnsupportedError(f"vLLM cannot serve this configuration: {shorten(error)}") from error
    except OSError as error:
        raise ModelFilesError(
            f"vLLM cannot read the configuration of {namespace.model}: {shorten(error)}",
            hint="give a folder with config.json (--model-files), or a name that the hub lets you read",
        ) from error
    except (TypeError, ValueError, RuntimeError, KeyError, AssertionError) as error:
        raise UsageError(f"vLLM refuses this configuration: {shorten(error)}") from error


def as_in_engine_core(line: Line, config: Any, dp_rank: int) -> Any:
    """Return the configuration as the engine core process of a data-parallel rank holds it before it starts its workers.

    The server pickles its configuration into that process, which then takes its rank (EngineCoreProc.run_engine_core).
    """
    from vllm.transformers_utils.config import maybe_register_config_serialize_by_value

    maybe_register_config_serialize_by_value()
    config = pickle.loads(pickle.dumps(config))  # noqa: S301 - our own bytes, a line above
    parallel = config.parallel_config
    data_parallel = parallel.data_parallel_size > 1 or dp_rank > 0
    if data_parallel:
        parallel.data_parallel_rank_local = dp_rank % (parallel.data_parallel_size_local or parallel.data_parallel_size)
    parallel.data_parallel_index = dp_rank
    if data_parallel and config.model_config.is_moe:
        parallel.data_parallel_rank = dp_rank
    elif line.has(INDEPENDENT_RANK):
        parallel.reconfigure_for_independent_dp_rank()
    else:
        parallel.data_parallel_size = parallel.data_parallel_size_local = 1
        parallel.data_parallel_rank = 0
    return config


def read_hub_from_cache(bench: Bench) -> None:
    """Let the hub's client read its local cache only, and vLLM believe that the hub is reachable.

    The model's files were laid out in a hub cache for this pass. Offline mode reads them without the network; but a vLLM that
    knows of it puts the snapshot's folder in the place of the model's name, and the name is part of the key.
    """
    import types

    from huggingface_hub import constants

    from warmstart.compiler.snapshot import SnapshotApi

    api = SnapshotApi(library_name="vllm")
    with bench.named("hub.offline"):
        bench.replace(constants, "HF_HUB_OFFLINE", True)
        bench.replace_everywhere("vllm.transformers_utils.repo_utils", "hf_api", lambda: api)
        online = types.SimpleNamespace(constants=types.SimpleNamespace(HF_HUB_OFFLINE=False))
        bench.replace("vllm.engine.arg_utils", "huggingface_hub", online)


@contextlib.contextmanager
def _refusals() -> Iterator[io.StringIO]:
    """Catch what argparse prints before it exits."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        yield said


def _last_line(said: io.StringIO) -> str:
    lines = [line for line in said.getvalue().splitlines() if line.strip() and "For further information" not in line]
    return shorten(lines[-1] if lines else "no reason given")
