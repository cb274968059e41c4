"""The configuration of s3://, as s3fs users know it, for obstore.

s3:// keeps s3fs's meaning: storage options, fsspec's configuration files and FSSPEC_* variables, and the credential chain of
the AWS SDKs, in their order. obstore starts 30 times faster and can express most of it; what it cannot (profiles, own sessions,
options that only botocore has) is left to s3fs by returning None. No credential is stored, printed or put into an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmstart.errors import AccessDenied, UsageError

_SAME = {"key", "username", "secret", "password", "token", "anon", "endpoint_url", "client_kwargs", "config_kwargs"}
_IGNORED = {
    "use_listings_cache", "skip_instance_cache", "listings_expiry_time", "max_paths", "default_block_size", "asynchronous",
    "default_fill_cache", "default_cache_type", "max_concurrency", "fixed_upload_size", "cache_regions", "loop",
}  # fmt: skip
_EXTRA = {"ServerSideEncryption": "server_side_encryption", "SSEKMSKeyId": "sse_kms_key_id"}
_METADATA_OFF = "true"


def fsspec_defaults(protocol: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Return what fsspec's own configuration says for a protocol. fsspec is imported only where there is such configuration."""
    folder = Path(env.get("FSSPEC_CONFIG_DIR") or Path(env.get("HOME", "/")) / ".config" / "fsspec")
    if not any(name.startswith("FSSPEC_") for name in env) and not folder.is_dir():
        return {}
    from fsspec.config import conf

    return dict(conf.get(protocol, {}))


def obstore_config(
    bucket: str, options: Mapping[str, Any], env: Mapping[str, str], timeout: float
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return obstore's configuration and client options for s3fs's `options`; None where obstore cannot express them.

    Raises UsageError for options that contradict themselves, AccessDenied where there are no credentials to be had.
    """
    if not options.keys() <= _SAME | _IGNORED | {"requester_pays", "s3_additional_kwargs"}:
        return None
    client_kwargs = dict(options.get("client_kwargs") or {})
    config_kwargs = dict(options.get("config_kwargs") or {})
    extra = dict(options.get("s3_additional_kwargs") or {})
    s3 = dict(config_kwargs.pop("s3", None) or {})
    for known in ("connect_timeout", "read_timeout", "retries", "max_pool_connections"):
        config_kwargs.pop(known, None)
    unknown = client_kwargs.keys() - {"endpoint_url", "region_name", "verify", "use_ssl"}
    if unknown or config_kwargs or s3.keys() - {"addressing_style"} or extra.keys() - _EXTRA.keys():
        return None
    credentials = _credentials(options, env)
    if credentials is None:
        return None
    config: dict[str, Any] = {**credentials, **{_EXTRA[name]: value for name, value in extra.items()}}
    config["region"] = client_kwargs.get("region_name") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    if options.get("requester_pays"):
        config["request_payer"] = True
    endpoint = _endpoint(options, client_kwargs, env)
    _address(config, bucket, endpoint, s3.get("addressing_style", "auto"))
    # Every provider has single-object DELETE, not all have the bulk call.
    config["disable_bulk_delete"] = True
    client = {"allow_http": endpoint.startswith("http://"), "connect_timeout": "5s", "timeout": f"{max(1, round(timeout))}s"}
    verify = client_kwargs.get("verify", env.get("AWS_CA_BUNDLE") or None)
    if verify is False:
        client["allow_invalid_certificates"] = True
    elif isinstance(verify, str):
        client["root_certificate"] = _certificate(verify)
    return config, client


def _credentials(options: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the credentials' configuration, in the SDKs' order; None where only botocore can get them."""
    key = options.get("key") or options.get("username")
    secret = options.get("secret") or options.get("password")
    token = options.get("token")
    if options.get("anon"):
        return {"skip_signature": True}
    if bool(key) != bool(secret):
        raise UsageError("an S3 key is configured without its secret, or a secret without its key", hint="set both, or neither")
    if key:
        if not token and env.get("AWS_SESSION_TOKEN"):
            return None  # obstore would add the environment's token to a key that it does not belong to
        return _static(key, secret, token)
    if env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE"):
        return None
    if env.get("AWS_ACCESS_KEY_ID") and env.get("AWS_SECRET_ACCESS_KEY"):
        return _static(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], env.get("AWS_SESSION_TOKEN"))
    if env.get("AWS_WEB_IDENTITY_TOKEN_FILE") and env.get("AWS_ROLE_ARN"):
        sts = env.get("AWS_ENDPOINT_URL_STS", "")
        if sts.startswith("http://"):
            return None  # obstore sends a web identity over TLS only
        return {
            "web_identity_token_file": env["AWS_WEB_IDENTITY_TOKEN_FILE"],
            "role_arn": env["AWS_ROLE_ARN"],
            "role_session_name": env.get("AWS_ROLE_SESSION_NAME") or "warmstart",
            **({"aws_endpoint_url_sts": sts} if sts else {}),
        }
    if _has_files(env):
        return None
    return _from_the_platform(env)


def _from_the_platform(env: Mapping[str, str]) -> dict[str, Any] | None:
    """Return where a container or an instance gets its credentials: EKS pod identity, ECS, or instance metadata."""
    if full := env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        if env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"):
            return None
        token_file = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        return {
            "container_credentials_full_uri": full,
            **({"container_authorization_token_file": token_file} if token_file else {}),
        }
    if relative := env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        return {"container_credentials_relative_uri": relative}
    if env.get("AWS_EC2_METADATA_DISABLED", "").lower() == _METADATA_OFF:
        raise AccessDenied(
            "no S3 credentials are configured",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a service account's role, or anonymous access",
        )
    return {}


def _static(key: Any, secret: Any, token: str | None) -> dict[str, Any]:
    return {"access_key_id": key, "secret_access_key": secret, **({"session_token": token} if token else {})}


def _has_files(env: Mapping[str, str]) -> bool:
    """Whether there are profile files, which botocore reads before it asks the platform."""
    home = Path(env.get("HOME", "/")) / ".aws"
    files = (env.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", env.get("AWS_CONFIG_FILE") or home / "config")
    return any(os.path.exists(file) for file in files)  # noqa: PTH110 - str or Path


def _endpoint(options: Mapping[str, Any], client_kwargs: Mapping[str, Any], env: Mapping[str, str]) -> str:
    configured = options.get("endpoint_url") or client_kwargs.get("endpoint_url")
    if not configured and env.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        configured = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    endpoint = str(configured or "").rstrip("/")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise UsageError(f"the S3 endpoint {endpoint[:80]!r} is not a URL", hint="write http://host:port or https://host")
    return endpoint


def _address(config: dict[str, Any], bucket: str, endpoint: str, style: str) -> None:
    """Choose path or virtual-hosted addressing as botocore does: by path at endpoints of one's own, by host at AWS."""
    if style not in ("auto", "path", "virtual"):
        raise UsageError(f"addressing_style is {style!r}", hint="use auto, path or virtual")
    virtual = style == "virtual" or (style == "auto" and not endpoint and "." not in bucket)
    config["virtual_hosted_style_request"] = virtual
    if endpoint:
        scheme, _, host = endpoint.partition("://")
        config["endpoint"] = f"{scheme}://{bucket}.{host}" if virtual else endpoint


def _certificate(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the certificates {path}: {error.strerror}") from error
