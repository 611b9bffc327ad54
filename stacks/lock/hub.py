"""One revision of a model as the Hub has it: every file with its size and SHA-256.

Asked through huggingface_hub, which knows HF_ENDPOINT, HF_TOKEN and the machine's proxies. Weights
carry their SHA-256 in the API. Other files carry the SHA-1 of their git blob only: they are
downloaded at that revision, checked against it, and hashed here.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from huggingface_hub import HfApi, constants, errors, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils.tqdm import disable_progress_bars
from pydantic import ValidationError

from inventory.document import shown
from stacks.lock import endpoint
from stacks.lock.errors import LockError
from stacks.schema import LockedModel, ModelFile

ASK_TIMEOUT_S = 30.0
# The Hub itself takes no larger file without a SHA-256; a mirror that gives none stays without.
SMALL_BYTES = 64 << 20
# httpx's or httpx2's, whichever the client was made with.
_HttpError: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]


def read(repository: str, revision: str) -> LockedModel:
    """Every file of `repository` at `revision` (a commit hash, a branch or a tag).

    Sizes in bytes. Raises LockError with one sentence when the Hub does not give them.
    """
    api = HfApi(token=endpoint.token(constants.ENDPOINT) or False)
    try:
        info = api.model_info(
            repository, revision=revision, files_metadata=True, timeout=ASK_TIMEOUT_S
        )
        if info.sha is None:
            raise LockError(
                f"{endpoint.shown(api.endpoint)} gives no commit hash for {repository}@{revision}"
            )
        listed = sorted(info.siblings or (), key=lambda one: one.rfilename)
        files = tuple(_file(api, repository, info.sha, one) for one in listed)
        return LockedModel(repository=repository, revision=info.sha, files=files, source="hub")
    except ValidationError as error:
        first = error.errors()[0]
        raise LockError(
            f"{repository}@{revision} cannot be locked: {shown(first['input'])} found; "
            f"{first['msg']}"
        ) from None
    except (_HttpError, HFValidationError, OfflineModeIsEnabled, OSError) as error:
        raise LockError(_sentence(api, repository, revision, error)) from None


def _file(api: HfApi, repository: str, commit: str, one: RepoSibling) -> ModelFile:
    if one.lfs is None and (one.size or 0) > SMALL_BYTES:
        return ModelFile(name=one.rfilename, size=one.size)
    if one.lfs is not None:
        return ModelFile(name=one.rfilename, size=one.lfs.size, sha256=one.lfs.sha256)
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        path = hf_hub_download(
            repository,
            one.rfilename,
            revision=commit,
            local_dir=folder,
            endpoint=api.endpoint,
            token=api.token,
        )
        content = Path(path).read_bytes()
    blob = b"blob %d\0" % len(content) + content
    if one.blob_id and hashlib.sha1(blob, usedforsecurity=False).hexdigest() != one.blob_id:
        raise LockError(
            f"{one.rfilename} of {repository}@{commit}: the bytes that arrived are not those of "
            f"git blob {one.blob_id}; run it again"
        )
    return ModelFile(
        name=one.rfilename, size=len(content), sha256=hashlib.sha256(content).hexdigest()
    )


def _sentence(api: HfApi, repository: str, revision: str, error: Exception) -> str:
    """Why the Hub did not answer; never with the token, which no message of ours holds."""
    hub = endpoint.shown(api.endpoint)
    told: dict[type[Exception], str] = {  # the narrower kinds first
        GatedRepoError: f"{repository} is gated: accept its terms on {hub} and put a "
        "token of that account into HF_TOKEN",
        RevisionNotFoundError: f"revision {revision} of {repository} is gone from {hub} "
        "(force-pushed or removed); the lock stays as it is, --revision main reads what is there",
        RepositoryNotFoundError: f"{hub} has no model {repository}, or it is private: "
        "check the name, or put a token that may read it into HF_TOKEN",
        HFValidationError: f"{repository!r} found; the name of a model (ORG/NAME) expected",
        OfflineModeIsEnabled: "HF_HUB_OFFLINE is set: unset it, the Hub has to be asked",
    }
    for kind, sentence in told.items():
        if isinstance(error, kind):
            return sentence
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        login = "; is HF_TOKEN still good?" if status in (401, 403) else ""
        return f"{hub} answers {status} for {repository}@{revision}{login}"
    root = error.__cause__ or error
    said = endpoint.without_login((str(root).splitlines() or ["no word"])[0], api.endpoint)
    return f"{hub} cannot be reached ({type(root).__name__}: {said[:300]})"
