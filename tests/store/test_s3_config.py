"""s3:// means what it means to s3fs users, whichever library serves it: options, files, environment, roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.store.cache import KEY
from tests.store.conftest import Entry
from tests.store.scripted import Answer, json_answer, scripted

from warmstart.errors import AccessDenied, UsageError
from warmstart.store import StoreOptions, open_store
from warmstart.store.backend_fsspec import FsspecBackend
from warmstart.store.backend_obstore import ObstoreBackend
from warmstart.store.opening import open_backend
from warmstart.store.s3config import obstore_config

STATIC = {"key": "AK", "secret": "SK"}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Start without any AWS or fsspec configuration, and with an empty home."""
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "FSSPEC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def config(options: dict[str, Any], **env: str) -> tuple[dict[str, Any], dict[str, Any]]:
    settings = obstore_config("bucket", options, {"HOME": "/nonexistent", **env}, 30.0)
    assert settings is not None
    return settings


def left_to_s3fs(options: dict[str, Any], **env: str) -> bool:
    return obstore_config("bucket", options, {"HOME": "/nonexistent", **env}, 30.0) is None


def test_keys_come_from_options_first_then_from_the_environment() -> None:
    env = {"AWS_ACCESS_KEY_ID": "EK", "AWS_SECRET_ACCESS_KEY": "ES"}
    assert config(STATIC, **env)[0]["access_key_id"] == "AK"
    from_env = config({}, **env, AWS_SESSION_TOKEN="T")[0]
    assert (from_env["access_key_id"], from_env["secret_access_key"], from_env["session_token"]) == ("EK", "ES", "T")
    assert config({"username": "U", "password": "P"})[0]["access_key_id"] == "U"
    assert config({"anon": True}, **env)[0]["skip_signature"] is True


def test_a_session_token_of_the_environment_is_not_mixed_with_keys_of_the_options() -> None:
    assert left_to_s3fs(STATIC, AWS_SESSION_TOKEN="T")
    assert config({**STATIC, "token": "O"}, AWS_SESSION_TOKEN="T")[0]["session_token"] == "O"


@pytest.mark.parametrize(
    ("options", "env", "endpoint"),
    [
        ({}, {}, None),
        ({"endpoint_url": "http://a:1/"}, {"AWS_ENDPOINT_URL_S3": "http://b:2"}, "http://a:1"),
        ({"client_kwargs": {"endpoint_url": "http://c:3"}}, {}, "http://c:3"),
        ({}, {"AWS_ENDPOINT_URL_S3": "http://b:2", "AWS_ENDPOINT_URL": "http://d:4"}, "http://b:2"),
        ({}, {"AWS_ENDPOINT_URL": "https://d"}, "https://d"),
        ({}, {"AWS_ENDPOINT_URL": "https://d", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, None),
    ],
)
def test_the_endpoint_comes_from_options_then_from_the_environment(
    options: dict[str, Any], env: dict[str, str], endpoint: str | None
) -> None:
    settings, client = config({**STATIC, **options}, **env)
    assert settings.get("endpoint") == endpoint
    assert client["allow_http"] is (endpoint or "").startswith("http://")


def test_regions_come_from_options_then_from_the_environment() -> None:
    named = {**STATIC, "client_kwargs": {"region_name": "eu-central-1"}}
    assert config(named, AWS_REGION="us-west-2")[0]["region"] == "eu-central-1"
    assert config(STATIC, AWS_REGION="us-west-2", AWS_DEFAULT_REGION="x")[0]["region"] == "us-west-2"
    assert config(STATIC, AWS_DEFAULT_REGION="eu-north-1")[0]["region"] == "eu-north-1"
    assert config(STATIC)[0]["region"] == "us-east-1"


def test_addressing_is_by_path_at_own_endpoints_and_by_host_at_aws_unless_told_otherwise() -> None:
    def style(name: str) -> dict[str, Any]:
        return {"config_kwargs": {"s3": {"addressing_style": name}}}

    own = {**STATIC, "endpoint_url": "https://minio:9000"}
    assert config(STATIC)[0]["virtual_hosted_style_request"] is True
    assert config({**STATIC, **style("path")})[0]["virtual_hosted_style_request"] is False
    assert config(own)[0]["virtual_hosted_style_request"] is False
    virtual = config({**own, **style("virtual")})[0]
    assert (virtual["virtual_hosted_style_request"], virtual["endpoint"]) == (True, "https://bucket.minio:9000")
    dotted = obstore_config("my.bucket", STATIC, {"HOME": "/nonexistent"}, 30.0)
    assert dotted
    assert dotted[0]["virtual_hosted_style_request"] is False


def test_encryption_payer_and_certificates_are_passed_on(tmp_path: Path) -> None:
    extra = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:key"}
    settings = config({**STATIC, "s3_additional_kwargs": extra, "requester_pays": True})[0]
    assert settings["server_side_encryption"] == "aws:kms"
    assert settings["sse_kms_key_id"] == "arn:key"
    assert settings["request_payer"] is True
    (tmp_path / "ca.pem").write_bytes(b"PEM")
    assert config(STATIC, AWS_CA_BUNDLE=str(tmp_path / "ca.pem"))[1]["root_certificate"] == b"PEM"
    assert config({**STATIC, "client_kwargs": {"verify": False}})[1]["allow_invalid_certificates"] is True


@pytest.mark.parametrize(
    ("options", "env"),
    [
        ({"profile": "dev"}, {}),
        ({"session": object()}, {}),
        ({}, {"AWS_PROFILE": "dev"}),
        ({}, {"AWS_DEFAULT_PROFILE": "dev"}),
        ({**STATIC, "config_kwargs": {"signature_version": "s3"}}, {}),
        ({**STATIC, "config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, {}),
        ({**STATIC, "client_kwargs": {"api_version": "2006-03-01"}}, {}),
        ({**STATIC, "s3_additional_kwargs": {"StorageClass": "GLACIER_IR"}}, {}),
        ({**STATIC, "an_option_of_tomorrow": 1}, {}),
        ({}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://x", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "t"}),
    ],
)
def test_what_obstore_cannot_express_is_left_to_s3fs(options: dict[str, Any], env: dict[str, str]) -> None:
    assert left_to_s3fs(options, **env)


def test_profile_files_are_left_to_s3fs_but_not_where_the_environment_has_keys(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\n")
    assert obstore_config("b", {}, {"HOME": str(tmp_path)}, 30.0) is None
    assert (
        obstore_config("b", {}, {"HOME": "/x", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / ".aws/credentials")}, 30.0) is None
    )
    assert obstore_config("b", STATIC, {"HOME": str(tmp_path)}, 30.0)
    keys = {"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert obstore_config("b", {}, keys, 30.0)


def test_roles_of_service_accounts_and_pods_are_found_in_the_sdks_order() -> None:
    irsa = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn:role", "AWS_ENDPOINT_URL_STS": "https://sts"}
    pod = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/t"}
    settings = config({}, **irsa, **pod)[0]
    assert settings["web_identity_token_file"] == "/token"
    assert settings["aws_endpoint_url_sts"] == "https://sts"
    assert "container_credentials_full_uri" not in settings
    settings = config({}, **pod)[0]
    assert settings["container_credentials_full_uri"] == "http://169.254.170.23/v1"
    assert settings["container_authorization_token_file"] == "/t"
    assert config({}, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI="/v2")[0]["container_credentials_relative_uri"] == "/v2"
    assert "access_key_id" not in config({})[0]


def test_no_credentials_at_all_is_denied_without_asking_the_network() -> None:
    with pytest.raises(AccessDenied, match="no S3 credentials are configured"):
        obstore_config("b", {}, {"HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true"}, 30.0)
    with pytest.raises(UsageError, match="without its secret"):
        obstore_config("b", {"key": "a"}, {"HOME": "/nonexistent"}, 30.0)


# Against a real server


def try_out(url: str, entry: Entry, **options: Any) -> None:
    """Publish and find an entry: the configuration reaches the server."""
    open_store(url, StoreOptions(**options)).publish(KEY, entry.document, entry.layers)
    assert open_store(url, StoreOptions(**options)).lookup(KEY).manifest == entry.document


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_the_environment_alone_is_enough(
    seaweedfs: servers.S3Server, entry: Entry, clean: pytest.MonkeyPatch, client: str
) -> None:
    for name, value in seaweedfs.environment().items():
        clean.setenv(name, value)
    url = f"s3://{seaweedfs.bucket}/config/env-{client}"
    assert isinstance(open_backend(url, StoreOptions()), ObstoreBackend)
    try_out(url, entry, s3_client=client)


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_fsspecs_own_configuration_files_are_read(
    seaweedfs: servers.S3Server, entry: Entry, clean: pytest.MonkeyPatch, tmp_path: Path, client: str
) -> None:
    """Fsspec reads them when it is imported, so the configuration is put where that left it."""
    from fsspec.config import conf, set_conf_files

    folder = tmp_path / "fsspec"
    folder.mkdir()
    (folder / "s3.json").write_text(json.dumps({"s3": seaweedfs.storage()}))
    clean.setenv("FSSPEC_CONFIG_DIR", str(folder))
    read: dict[str, Any] = {}
    set_conf_files(str(folder), read)
    clean.setitem(conf, "s3", read["s3"])
    try_out(f"s3://{seaweedfs.bucket}/config/file-{client}", entry, s3_client=client)


def test_a_profile_file_is_served_by_s3fs(
    seaweedfs: servers.S3Server, entry: Entry, clean: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "credentials").write_text(
        f"[warm]\naws_access_key_id = {seaweedfs.writer.key}\naws_secret_access_key = {seaweedfs.writer.secret}\n"
    )
    clean.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    clean.setenv("AWS_PROFILE", "warm")
    clean.setenv("AWS_ENDPOINT_URL_S3", seaweedfs.endpoint)
    url = f"s3://{seaweedfs.bucket}/config/profile"
    assert isinstance(open_backend(url, StoreOptions()), FsspecBackend)
    try_out(url, entry)


def test_pod_identity_gets_credentials_with_the_pods_token(
    seaweedfs: servers.S3Server, entry: Entry, clean: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def agent(method: str, path: str, headers: dict[str, str]) -> Answer:
        del method, path
        if headers.get("authorization") != "pod-token":
            return Answer(401)
        user = seaweedfs.writer
        return json_answer(
            {"AccessKeyId": user.key, "SecretAccessKey": user.secret, "Token": "", "Expiration": "2030-01-01T00:00:00Z"}
        )

    (tmp_path / "token").write_text("pod-token")
    with scripted(agent) as server:
        clean.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.endpoint}/v1/credentials")
        clean.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        clean.setenv("AWS_ENDPOINT_URL_S3", seaweedfs.endpoint)
        url = f"s3://{seaweedfs.bucket}/config/pod"
        assert isinstance(open_backend(url, StoreOptions()), ObstoreBackend)
        try_out(url, entry)
        assert server.requests


STS_ANSWER = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKID</AccessKeyId><SecretAccessKey>role-secret</SecretAccessKey>
<SessionToken>role-session</SessionToken><Expiration>2031-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
STS_DENIAL = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>AccessDenied</Code>
<Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error><RequestId>r</RequestId></ErrorResponse>"""


def service_account(clean: pytest.MonkeyPatch, folder: Path, *, sts: str, s3: str) -> None:
    """Set what EKS sets for a pod whose service account has a role."""
    (folder / "token").write_text("a.web.token")
    clean.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))
    clean.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/warmstart")
    clean.setenv("AWS_ENDPOINT_URL_STS", sts)
    clean.setenv("AWS_ENDPOINT_URL_S3", s3)
    clean.setenv("AWS_REGION", "us-east-1")


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Return a certificate for 127.0.0.1 that signs itself, and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    return folder / "cert.pem", folder / "key.pem"


def test_a_service_accounts_role_is_assumed_over_tls(
    moto: servers.S3Server, entry: Entry, clean: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """IRSA through obstore, which reaches the token service over TLS only."""
    certificate = self_signed(tmp_path)
    with scripted(lambda *_: Answer(200, STS_ANSWER.encode()), certificate=certificate) as sts:
        service_account(clean, tmp_path, sts=sts.endpoint, s3=moto.endpoint)
        clean.setenv("AWS_CA_BUNDLE", str(certificate[0]))
        url = f"s3://{moto.bucket}/config/irsa-tls"
        assert isinstance(open_backend(url, StoreOptions()), ObstoreBackend)
        try_out(url, entry)
        assert "AssumeRoleWithWebIdentity" in sts.requests[0][1]


def test_a_service_accounts_role_is_assumed_without_tls_by_s3fs(
    moto: servers.S3Server, entry: Entry, clean: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """IRSA through s3fs, against moto's own token service."""
    service_account(clean, tmp_path, sts=moto.endpoint, s3=moto.endpoint)
    url = f"s3://{moto.bucket}/config/irsa"
    assert isinstance(open_backend(url, StoreOptions()), FsspecBackend)
    try_out(url, entry)


@pytest.mark.parametrize("tls", [False, True], ids=["s3fs", "obstore"])
def test_a_role_that_cannot_be_assumed_is_denied(
    clean: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, tls: bool
) -> None:
    certificate = self_signed(tmp_path) if tls else None
    with scripted(lambda *_: Answer(403, STS_DENIAL.encode()), certificate=certificate) as sts:
        service_account(clean, tmp_path, sts=sts.endpoint, s3="http://127.0.0.1:9")
        if certificate:
            clean.setenv("AWS_CA_BUNDLE", str(certificate[0]))
        with pytest.raises(AccessDenied) as caught:
            open_store("s3://warm/x").lookup(KEY)
        assert sts.requests
    assert "web.token" not in str(caught.value)
    assert caplog.text == ""


def test_anonymous_reading_sends_no_signature(clean: pytest.MonkeyPatch) -> None:
    del clean
    with scripted(lambda *_: Answer(403, b"<Error><Code>AccessDenied</Code></Error>")) as server:
        storage = {"anon": True, "endpoint_url": server.endpoint}
        with pytest.raises(AccessDenied):
            open_store("s3://warm/x", StoreOptions(storage=storage)).lookup(KEY)
        assert server.requests
        assert all("authorization" not in headers for _, _, headers in server.requests)
