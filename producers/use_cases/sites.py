"""Create, import, export, compare and roll back sites, and their views for HTTP and CLI.

The active release is a ledger row, changed by compare-and-swap; the copy for web servers follows it. Nothing becomes
active without passing the scan of the site's profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from sqlmodel import Session

from ledger import audit
from ledger.errors import ReleaseNotFoundError
from ledger.releases import (
    activate,
    active_release,
    add_release,
    add_site,
    find_site,
    lock_site,
    published_release,
    releases_of,
    revoke_previews,
    sites_of,
)
from ledger.store import Ledger
from ledger.tables import Release, Site, Tenant
from producers.errors import ImportRefusedError, InvalidInputError, SiteConflictError, UnknownTenantError
from producers.use_cases.changes import Comparison, compare_releases
from producers.use_cases.jobs import View
from routing.ids import new_id
from routing.jobs import SITE_NAME_RULE, check_site_name
from routing.policy.platform import Policy
from sites.archives import SPEC_FILE
from sites.content import content_of
from sites.content_store import ContentStore
from sites.directories import read_directory
from sites.files import DEFAULT_MAX_TREE_BYTES, INSTALLED
from sites.ownership import adopt
from sites.releases import build_release, check_release_integrity, lay_out, manifest_of, try_show_active
from sites.spec.model import parse_site
from sites.spec.render import detached_files


@dataclass(frozen=True)
class Sites:
    """The sites of one installation."""

    ledger: Ledger
    content_store: ContentStore
    policy: Policy
    known_keys: tuple[str, ...] = ()
    """Secrets that no site may hold."""

    def create(self, tenant: str, name: str, *, profile: str = "default", actor: str = "operator") -> Site:
        """Make an empty site.

        Raises:
            InvalidInputError: the caller's fault: name or profile.
            SiteConflictError: the caller's fault.
            UnknownTenantError: the caller's fault.
        """
        with self.ledger.begin() as session:
            site, is_new = self._ensure(session, tenant, name, profile=profile, actor=actor)
        if not is_new:
            raise SiteConflictError(f"site {name} exists already")
        return site

    def set_profile(self, tenant: str, name: str, profile: str, *, actor: str = "operator") -> Site:
        """Set the publish profile for a site's future releases; what is published stays.

        Raises:
            InvalidInputError, SiteNotFoundError: the caller's fault.
        """
        self._check_profile(profile)
        with self.ledger.begin() as session:
            site = lock_site(session, find_site(session, tenant, name).id)
            before, site.profile = site.profile, profile
            audit.append(
                session, "site_profile_set", actor=actor, tenant=tenant, site=name, before=before, profile=profile
            )
        return site

    def _check_profile(self, profile: str) -> None:
        if profile not in self.policy.profiles:
            raise InvalidInputError("profile", f"must be one of {', '.join(sorted(self.policy.profiles))}")

    def import_site(self, tenant: str, name: str, directory: Path, *, actor: str = "operator") -> Release:
        """Publish a directory's content, creating the site if it does not exist: where no worker runs to import it.

        Raises:
            InvalidInputError, SpecError, PathRefusedError, TreeRefusedError, ImportRefusedError: the fault of the
                directory's author; nothing changed.
            UnknownTenantError: the caller's fault.
            SiteConflictError, PublishConflictError: nobody's fault: the site is being written; nothing changed.
        """
        max_files = max(profile.max_files for profile in self.policy.profiles.values())
        content = content_of(
            read_directory(directory, max_bytes=DEFAULT_MAX_TREE_BYTES, max_files=max_files, without={INSTALLED})
        )
        with self.ledger.begin() as session:
            site, _ = self._ensure(session, tenant, name, profile="default", actor=actor)
        adopt(self.ledger, self.content_store)
        new = build_release(
            self.content_store,
            content.files,
            site=site,
            policy=self.policy,
            spec=content.spec,
            base_release_id=site.active_release_id,
            known_keys=self.known_keys,
        )
        if not new.scan_passed:
            raise ImportRefusedError(tuple(new.scan["findings"]))
        release_id = new_id()
        lay_out(self.content_store, site, new, release_id=release_id)
        with self.ledger.begin() as session:
            locked = lock_site(session, site.id)
            if locked.lock_job_id is not None:
                raise SiteConflictError(
                    f"job {locked.lock_job_id} is writing site {name}; wait for its end or cancel it"
                )
            release = add_release(session, new, release_id=release_id)
            activate(session, site.id, release, base_release_id=new.base_release_id)
            audit.append(
                session,
                "site_imported",
                actor=actor,
                tenant=tenant,
                site=name,
                release=str(release.id),
                digest=release.digest,
                scan=release.scan_digest,
            )
        try_show_active(self.ledger, self.content_store, site.id)
        return release

    def read(
        self, tenant: str, name: str, *, release: UUID | None = None, with_sources: bool = False
    ) -> tuple[Release, dict[str, bytes]]:
        """Return a release and its files, with its spec as `site.json` if it renders all pages.

        By default the active one, and what it serves; `with_sources` adds the sources of a built site, for an import.

        Raises:
            SiteNotFoundError, ReleaseNotFoundError: the caller's fault.
        """
        found = self._release(tenant, name, release)
        manifest = manifest_of(found)
        files = self.content_store.read_tree(manifest if with_sources else manifest.served)
        if found.spec_sha256 is not None:
            spec = self.content_store.get(found.spec_sha256)
            if not detached_files(parse_site(spec), files):
                files[SPEC_FILE] = spec
        return found, files

    def all(self, tenant: str) -> Sequence[Site]:
        """Return a tenant's sites by name."""
        with self.ledger.begin() as session:
            return sites_of(session, tenant)

    def releases(self, tenant: str, name: str, *, limit: int = 50) -> tuple[Site, Sequence[Release]]:
        """Return a site and its published releases, newest first.

        Raises:
            SiteNotFoundError: the caller's fault.
        """
        with self.ledger.begin() as session:
            site = find_site(session, tenant, name)
            return site, releases_of(session, site, limit=limit)

    def diff(self, tenant: str, name: str, before: UUID | None = None, after: UUID | None = None) -> Comparison:
        """Return the changes from one release to another.

        By default from the release that `after` replaced, if any, to the active one.

        Raises:
            SiteNotFoundError, ReleaseNotFoundError: the caller's fault.
        """
        new = self._release(tenant, name, after)
        origin = before or new.base_release_id
        old = self._release(tenant, name, origin) if origin is not None else None
        return compare_releases(self.content_store, old, new)

    def revoke_previews(self, tenant: str, name: str, *, release: UUID | None = None, actor: str = "operator") -> int:
        """Revoke the preview links of one release or of all; new ones can be requested at once.

        Returns:
            How many releases this concerns.

        Raises:
            SiteNotFoundError, ReleaseNotFoundError: the caller's fault.
        """
        with self.ledger.begin() as session:
            site = find_site(session, tenant, name)
            revoked = revoke_previews(session, site, release_id=release)
            if release is not None and not revoked:
                raise ReleaseNotFoundError
            audit.append(
                session,
                "previews_revoked",
                actor=actor,
                tenant=tenant,
                site=name,
                release=str(release) if release else None,
            )
        return revoked

    def rollback(self, tenant: str, name: str, *, to: UUID | None = None, actor: str = "operator") -> Release:
        """Make an earlier release active again; a job that awaits approval will then not publish.

        By default the release that the active one replaced.

        Raises:
            SiteNotFoundError, ReleaseNotFoundError, SiteConflictError: the caller's fault.
            PublishConflictError: nobody's fault: another release became active first; nothing changed.
            ReleaseAlteredError, BlobMissingError, BlobCorruptError: our fault, or the disk's; nothing changed.
        """
        with self.ledger.begin() as session:
            site = find_site(session, tenant, name)
            active = active_release(session, site)
            target = to or (active.base_release_id if active else None)
            if target is None:
                raise SiteConflictError(f"site {name} has no earlier release")
            release = published_release(session, site, target)
            check_release_integrity(release)
        lay_out(self.content_store, site, release, release_id=release.id)  # slow, so while nothing is locked
        with self.ledger.begin() as session:
            locked = lock_site(session, site.id)
            release = published_release(session, locked, target)
            check_release_integrity(release)
            activate(session, site.id, release, base_release_id=active.id if active else None)
            audit.append(
                session,
                "rolled_back",
                actor=actor,
                tenant=tenant,
                site=name,
                release=str(release.id),
                origin=str(active.id) if active else None,
                digest=release.digest,
            )
        try_show_active(self.ledger, self.content_store, site.id)
        return release

    def _ensure(self, session: Session, tenant: str, name: str, *, profile: str, actor: str) -> tuple[Site, bool]:
        try:
            check_site_name(name)
        except ValueError:
            raise InvalidInputError("name", f"must be {SITE_NAME_RULE}") from None
        self._check_profile(profile)
        if session.get(Tenant, tenant) is None:
            raise UnknownTenantError(tenant)
        is_new = add_site(session, tenant, name, profile=profile)
        if is_new:
            audit.append(session, "site_created", actor=actor, tenant=tenant, site=name, profile=profile)
        return find_site(session, tenant, name), is_new

    def _release(self, tenant: str, name: str, release: UUID | None) -> Release:
        with self.ledger.begin() as session:
            site = find_site(session, tenant, name)
            target = release or site.active_release_id
            if target is None:
                raise ReleaseNotFoundError
            return published_release(session, site, target)


class SiteView(View):
    """A site."""

    name: str
    profile: str
    active_release_id: UUID | None
    live_url: str | None
    is_shown: bool
    """Whether its copy for web servers shows the active release; the dispatcher brings up one that lags."""
    locked_by: UUID | None
    """The job that is writing the site."""
    created_at: datetime


class ReleaseView(View):
    """A published release of a site."""

    id: UUID
    is_active: bool
    base_release_id: UUID | None
    """The release that it replaced."""
    job_id: UUID | None
    digest: str
    files: int
    total_bytes: int
    public: str
    """The served directory of a built site; empty when all files are served."""
    has_spec: bool
    """Whether tier 1 can edit it by its spec; pages edited otherwise are no longer rendered from it."""
    published_at: datetime | None
    is_swept: bool
    """Whether its files were deleted: it can no longer be exported, compared or rolled back to."""


def site_view(site: Site, *, pages_url: str) -> SiteView:
    """Return the view of a site; `pages_url` is the origin of its pages."""
    live_url = f"{pages_url.rstrip('/')}/live/{site.tenant}/{site.name}/"
    return SiteView.of(
        site,
        live_url=live_url if site.active_release_id else None,
        is_shown=site.shown_release_id == site.active_release_id,
        locked_by=site.lock_job_id,
    )


def release_view(release: Release, *, is_active: bool) -> ReleaseView:
    """Return the view of a release."""
    return ReleaseView.of(
        release,
        is_active=is_active,
        files=int(release.signals.get("files", 0)),
        public=str(release.manifest.get("public", "")),
        has_spec=release.spec_sha256 is not None,
        is_swept=release.swept_at is not None,
    )
