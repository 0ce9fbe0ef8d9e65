"""Errors of site files, specs, releases and previews, each with who is at fault."""

from __future__ import annotations

from typing import Literal, NamedTuple

_SHOWN_PATH_CHARS = 120


class SiteError(Exception):
    """Base of all errors of this package."""


def show_path(path: str) -> str:
    """Return a path that is safe to print: escaped to ASCII and cut."""
    shown = ascii(path)
    return shown if len(shown) <= _SHOWN_PATH_CHARS else shown[: _SHOWN_PATH_CHARS - 1] + "…"


class PathRefusedError(SiteError, ValueError):
    """A file name breaks a rule (the sender's fault)."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(reason, path[:_SHOWN_PATH_CHARS])
        self.reason = reason
        self.shown = show_path(path)

    def __str__(self) -> str:
        return f"path {self.shown} is refused: {self.reason}"


class TreeRefusedError(SiteError, ValueError):
    """A set of files breaks a rule: a collision, a limit, a kind of file (the sender's fault)."""

    def __init__(self, reason: str, path: str, detail: str) -> None:
        super().__init__(reason, path[:_SHOWN_PATH_CHARS], detail)
        self.reason = reason
        self.shown = show_path(path)
        self.detail = detail

    def __str__(self) -> str:
        what = f"{self.shown} is refused" if self.args[1] else "refused"
        return f"{what}: {self.reason}: {self.detail}"


class BlobMissingError(SiteError, LookupError):
    """The store holds no blob of this digest (our fault, or a lost disk)."""


class StoreUnavailableError(SiteError, OSError):
    """The store is not mounted or not created yet; a retry may succeed."""


class StoreTakenError(SiteError):
    """The content store belongs to another ledger, whose files nobody else may remove (the operator's fault)."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner)
        self.owner = owner

    def __str__(self) -> str:
        return (
            f"the content store belongs to another ledger ({self.owner[:40]!a}): give each installation a place "
            "of its own; `pointsman restore` takes one over"
        )


class BlobCorruptError(SiteError):
    """A stored blob no longer matches its digest (the disk's fault)."""


class ReleaseAlteredError(SiteError, ValueError):
    """A recorded release is not the one that was scanned (the fault of whoever changed the record)."""


class ManifestError(SiteError, ValueError):
    """A stored manifest cannot be read (our fault)."""


class PreviewRefusedError(SiteError, ValueError):
    """A preview token is invalid or expired (the bearer's fault)."""

    def __init__(self, reason: Literal["expired", "tampered"]) -> None:
        super().__init__(reason)
        self.reason: Literal["expired", "tampered"] = reason

    def __str__(self) -> str:
        return f"the preview link is {self.reason}"


# Findings about a site, and the exceptions of the spec engine.
#
# json-render decides what a spec is: what its validator refuses is refused here under its own code, and what it accepts
# is accepted unless a rule of ours refuses it. docs/sites.md lists every code; tests hold the page against this package
# and against the real one.

Severity = Literal["error", "warning"]
_SHOWN_FINDINGS = 5
_MAX_PATH_CHARS = 300


class Finding(NamedTuple):
    """One place of a spec that breaks one rule."""

    code: str
    """The rule's stable name: upstream's own code where json-render has the rule, ours where it has not."""
    path: str
    """JSON pointer into the site document, such as `/pages/index.html/elements/hero/props/heading`."""
    message: str
    """The rule in plain words for a person or for the model's repair round; hostile input is shown escaped."""
    severity: Severity = "error"


class SpecError(SiteError, ValueError):
    """A site spec or an edit of it breaks a rule (the fault of whoever wrote it: the model or the caller)."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__(findings)
        self.findings = findings

    @property
    def code(self) -> str:
        """The code of the first finding: what receipts and metrics record."""
        return self.findings[0].code if self.findings else "invalid"

    def __str__(self) -> str:
        shown = [f"{finding.path or '/'}: {finding.message} ({finding.code})" for finding in self.findings]
        more = len(shown) - _SHOWN_FINDINGS
        return "; ".join(shown[:_SHOWN_FINDINGS]) + (f"; and {more} more" if more > 0 else "")


def refuse(code: str, path: str, message: str) -> SpecError:
    """Return the error that holds one finding."""
    return SpecError((Finding(code, path[:_MAX_PATH_CHARS], message),))


def shown(value: object) -> str:
    """Return a hostile value as short ASCII that is safe in a message."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:59] + "..."


def errors_of(findings: tuple[Finding, ...] | list[Finding]) -> tuple[Finding, ...]:
    """Return the findings that make a site invalid."""
    return tuple(finding for finding in findings if finding.severity == "error")


class DetachedPagesError(SiteError, ValueError):
    """A change of the spec would change files that are no longer its render (nobody's fault); nothing changed."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(paths)
        self.paths = paths

    def __str__(self) -> str:
        verb = "is" if len(self.paths) == 1 else "are"
        return f"{', '.join(self.paths)} {verb} no longer rendered from the spec, and this edit would change more there"


class WorkspaceError(SiteError):
    """Base of errors of a run's workspace."""


class WorkspaceMissingError(WorkspaceError, LookupError):
    """The workspace, or a commit of it, is missing (our fault, or a lost disk)."""


class RepositoryRefusedError(WorkspaceError, ValueError):
    """A project's repository is refused (its owner's fault); the reason is a short, stable code."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"the repository is refused: {self.reason}: {self.detail}"


class WriteConflictError(WorkspaceError):
    """A step changed files that changed on the run's head meanwhile (the plan's fault): the step fails."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(paths)
        self.paths = paths

    def __str__(self) -> str:
        shown = ", ".join(ascii(path) for path in self.paths[:5])
        return f"files were changed by another step meanwhile: {shown}"


class ObstructedError(WorkspaceError, ValueError):
    """A file cannot replace a directory, a link or a submodule (the agent's fault)."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path!a} cannot be written: something else stands in its place"


class HandoverError(SiteError, ValueError):
    """The work of a run cannot be handed over (the caller's fault); the text says why."""
