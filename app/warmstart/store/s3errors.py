"""What an S3 server's refusals mean here, whichever library brought them."""

from __future__ import annotations

from warmstart.errors import AccessDenied, EntryInvalid, NoSpaceError, StoreUnavailable, UsageError, WarmstartError
from warmstart.store.backend import ObjectMissing

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
_UNKNOWN = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity", "InvalidClientTokenId"}
_REGION = {
    "PermanentRedirect", "TemporaryRedirect", "Redirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
    "AuthorizationQueryParametersError",
}  # fmt: skip
_BUCKET = {"NoSuchBucket", "InvalidBucketName"}
_FULL = {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "EntityTooLarge"}


def s3_error(code: str, status: int, where: str, doing: str, request_id: str = "") -> WarmstartError:
    """Return the error of ours for an S3 error code (may be empty) and an HTTP status (0: there was no answer)."""
    said = f" ({code or status}{f', request {request_id[:64]}' if request_id else ''})" if code or status else ""
    what = f"cannot {doing} {where}"
    if code in _BUCKET:
        return UsageError(f"{what}: there is no such bucket{said}", hint="create the bucket, or correct the store's URL")
    if code in _EXPIRED:
        return AccessDenied(f"{what}: the credentials have expired{said}", hint="renew them")
    if code in _UNKNOWN:
        return AccessDenied(
            f"{what}: the server does not accept these credentials{said}", hint="check key, secret and endpoint"
        )
    if code == "RequestTimeTooSkewed":
        return AccessDenied(f"{what}: this machine's clock differs from the server's{said}", hint="set the clock")
    if code in _REGION or status in (301, 307, 308):
        return UsageError(f"{what}: the bucket is in another region{said}", hint="set AWS_REGION to the bucket's region")
    if code in _FULL or status == 507:
        return NoSpaceError(f"{what}: the server has no room for it{said}", hint="run warmstart store gc, or raise the quota")
    if code == "InvalidRange" or status == 416:
        return EntryInvalid(f"{where} has fewer bytes than its manifest states{said}")
    if status in (401, 403) or code in ("AccessDenied", "AllAccessDisabled", "AccountProblem"):
        return AccessDenied(
            f"{what}: access is denied{said}",
            hint="grant s3:GetObject and s3:ListBucket to readers, s3:PutObject and s3:DeleteObject to publishers",
        )
    if code == "NoSuchKey" or status == 404:
        return ObjectMissing(f"{where} is not there")
    return StoreUnavailable(f"{what}: the server does not serve it{said}" if said else f"{what}: the server does not answer")
