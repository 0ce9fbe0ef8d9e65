"""Unpack an uploaded site: its files, rendered or built where it has a spec or a build, are offered for approval.

No model reads it, and nothing of it runs outside a box. What is refused names the entry and the rule.
"""

from __future__ import annotations

from routing.jobs import Reason, State, Upload
from sites.archives import read_archive
from sites.content import content_of
from sites.errors import BlobMissingError, PathRefusedError, SpecError, TreeRefusedError
from sites.files import public_of
from workers.attempt import Attempt
from workers.compute import timed
from workers.handlers.build import build_in_box
from workers.inputs import Inputs
from workers.outcomes import Candidate, Ended, Outcome

_GONE = "the archive is no longer kept; upload it again"


def import_upload(attempt: Attempt) -> Outcome:
    """Do the job of an import."""
    content = attempt.compute(_unpack)
    if isinstance(content, Ended) or public_of(content.files) is not None:
        return content
    return build_in_box(attempt, lambda: content)


def _unpack(inputs: Inputs) -> Candidate | Ended:
    upload = Upload.model_validate(inputs.claim.job.request["upload"], extra="ignore")
    policy = inputs.policy
    max_files = max(profile.max_files for profile in policy.profiles.values())
    try:
        with timed("unpack"):
            archive = inputs.content_store.get(upload.sha256)
            files = read_archive(archive, max_bytes=policy.uploads.site_bytes, max_files=max_files)
            content = content_of(files)
    except BlobMissingError:
        return Ended(State.FAILED, Reason.UPLOAD_REFUSED, _GONE)
    except (PathRefusedError, SpecError, TreeRefusedError) as error:
        return Ended(State.FAILED, Reason.UPLOAD_REFUSED, str(error))
    total = sum(map(len, files.values()))
    summary = f"Imported {len(files)} {'file' if len(files) == 1 else 'files'} of {total:,} bytes."
    return Candidate(content.files, summary, spec=content.spec, facts={"how": "an upload"})
