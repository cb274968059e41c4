"""Options that no compiled artifact depends on, each with its reason: what identity leaves out of the key.

Strict on purpose: an option stands here only where it is used outside the engine's model code, or where it differs from pod
to pod and says no more than which of the same ranks a pod runs. What is not listed counts.
"""

from __future__ import annotations

from collections.abc import Mapping

_ADDRESS = "an address or port that pods and processes find each other by"
_TLS = "TLS of the HTTP server"
_HTTP = "behaviour of the HTTP server"
_REQUEST = "how the HTTP server reads requests and writes answers, before and after the model"
_LOG = "what is logged"
_METRIC = "what is measured and reported"
_SECRET = "a credential"  # noqa: S105 - the reason, not a password
_PLACE = "which ranks of the same layout this pod runs; differs from pod to pod"
_WEIGHTS = "where weights are stored and how fast they are read, not what they are"
_PROCESS = "the life of the server's processes"

NEUTRAL: Mapping[str, str] = {
    "config": "a file of options, merged into the arguments before they are read",
    "host": _ADDRESS,
    "port": _ADDRESS,
    "uds": _ADDRESS,
    "grpc": _ADDRESS,
    "grpc_port": _ADDRESS,
    "root_path": _ADDRESS,
    "master_addr": _ADDRESS,
    "master_port": _ADDRESS,
    "data_parallel_address": _ADDRESS,
    "data_parallel_rpc_port": _ADDRESS,
    "data_parallel_supervisor_port": _ADDRESS,
    "otlp_traces_endpoint": _ADDRESS,
    "tool_server": _ADDRESS,
    "ssl_keyfile": _TLS,
    "ssl_certfile": _TLS,
    "ssl_ca_certs": _TLS,
    "ssl_cert_reqs": _TLS,
    "ssl_ciphers": _TLS,
    "enable_ssl_refresh": _TLS,
    "api_key": _SECRET,
    "hf_token": _SECRET,
    "headless": _PLACE,
    "node_rank": _PLACE,
    "data_parallel_rank": _PLACE,
    "data_parallel_start_rank": _PLACE,
    "allow_credentials": _HTTP,
    "allowed_origins": _HTTP,
    "allowed_methods": _HTTP,
    "allowed_headers": _HTTP,
    "middleware": _HTTP,
    "enable_request_id_headers": _HTTP,
    "disable_fastapi_docs": _HTTP,
    "enable_offline_docs": _HTTP,
    "h11_max_incomplete_event_size": _HTTP,
    "h11_max_header_count": _HTTP,
    "sse_keep_alive_interval": _HTTP,
    "enable_scale_out": _HTTP,
    "enable_tokenizer_info_endpoint": _HTTP,
    "fingerprint_mode": _HTTP,
    "fingerprint_value": _HTTP,
    "served_model_name": "the name that clients use",
    "api_server_count": "how many HTTP server processes stand before the engine",
    "dp_supervisor_probe_interval_s": _PROCESS,
    "dp_supervisor_probe_timeout_s": _PROCESS,
    "dp_supervisor_probe_failure_threshold": _PROCESS,
    "shutdown_timeout": _PROCESS,
    "watchdog_config": _PROCESS,
    "fail_on_environ_validation": _PROCESS,
    "chat_template": _REQUEST,
    "chat_template_content_format": _REQUEST,
    "trust_request_chat_template": _REQUEST,
    "default_chat_template_kwargs": _REQUEST,
    "reasoning_effort_map": _REQUEST,
    "response_role": _REQUEST,
    "return_tokens_as_token_ids": _REQUEST,
    "enable_auto_tool_choice": _REQUEST,
    "exclude_tools_when_tool_choice_none": _REQUEST,
    "tool_call_parser": _REQUEST,
    "tool_parser_plugin": _REQUEST,
    "tool_strict_level": _REQUEST,
    "enable_prompt_tokens_details": _REQUEST,
    "enable_force_include_usage": _REQUEST,
    "cohere_is_reasoning_model": _REQUEST,
    "cohere_format": _REQUEST,
    "anthropic_disabled_thinking_effort": _REQUEST,
    "allowed_local_media_path": _REQUEST,
    "allowed_media_domains": _REQUEST,
    "max_log_len": _LOG,
    "enable_log_outputs": _LOG,
    "enable_log_deltas": _LOG,
    "enable_log_requests": _LOG,
    "log_error_stack": _LOG,
    "log_level": _LOG,
    "log_config_file": _LOG,
    "logging_config": _LOG,
    "uvicorn_log_level": _LOG,
    "disable_uvicorn_access_log": _LOG,
    "disable_access_log_for_endpoints": _LOG,
    "enable_logging_iteration_details": _LOG,
    "use_tqdm_on_load": _LOG,
    "disable_log_stats": _METRIC,
    "aggregate_engine_logging": _METRIC,
    "enable_per_request_metrics": _METRIC,
    "enable_server_load_tracking": _METRIC,
    "show_hidden_metrics_for_version": _METRIC,
    "kv_cache_metrics": _METRIC,
    "kv_cache_metrics_sample": _METRIC,
    "custom_histogram_buckets": _METRIC,
    "per_request_spec_decode_metrics": _METRIC,
    "enable_mfu_metrics": _METRIC,
    "download_dir": _WEIGHTS,
    "safetensors_prefetch_num_threads": _WEIGHTS,
    "safetensors_prefetch_block_size": _WEIGHTS,
}
"""vLLM's own name of the option → why the compiled artifact does not depend on it."""
