"""Rules for a site's files: names, sets of names, media types, and which part is served (threats E and F1).

A name is checked here before anything else uses it. The rules are those of the strictest file system that a release may
be copied to, so that one name never means two files or a file elsewhere.
"""

from __future__ import annotations

import json
import posixpath
import re
import unicodedata
from collections.abc import Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Any, TypeVar

from sites.errors import PathRefusedError, TreeRefusedError

MAX_PATH_BYTES = 4096
MAX_SEGMENT_BYTES = 255
MAX_DEPTH = 32

_DEVICE_NAMES = frozenset(
    ["con", "prn", "aux", "nul", "clock$", "conin$", "conout$"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in "123456789¹²³"]
)
_DRIVE = re.compile(r"(?:^|/)[A-Za-z]:")

_RESERVED = frozenset('<>:"|?*')
"""What Windows refuses, or reads as another file: `x::$DATA` is `x`, `.git::$INDEX_ALLOCATION` is `.git`."""
_CATEGORIES = {
    **dict.fromkeys(("Cs", "Co", "Cn"), "encoding"),  # not read alike by everybody
    **dict.fromkeys(("Cc", "Zl", "Zp"), "control"),
    "Cf": "direction",  # bidirectional overrides, zero-width characters, soft hyphens
}
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that show nothing, although their categories are those of visible characters."""
_VARIATIONS = re.compile("[\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Selectors of a character's look, which no name needs to differ by."""


@lru_cache(maxsize=4096)  # a diff names each file several times
def check_path(path: str) -> str:
    """Return a relative file name in Unicode normal form C.

    Raises:
        PathRefusedError: `empty encoding control direction backslash absolute drive dot_segment parent
            reserved_character invisible trailing_dot_space device_name too_deep segment_too_long too_long` (the
            sender's fault).
    """
    reason = _whole_reason(path)
    if reason:
        raise PathRefusedError(reason, path)
    normal = unicodedata.normalize("NFC", path)
    segments = normal.split("/")
    reason = "too_deep" if len(segments) > MAX_DEPTH else next(filter(None, map(_segment_reason, segments)), None)
    if not reason and len(normal.encode()) > MAX_PATH_BYTES:
        reason = "too_long"
    if reason:
        raise PathRefusedError(reason, path)
    return normal


def collision_key(path: str) -> str:
    """Return the key that two names share if some file system would treat them as one file."""
    if path.isascii():  # in its normal forms as it stands
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKC", path).casefold())


_PLANTED_TEXT = """
agents: .agent .agents agent.md agents.md agents.*.md .aiassistant .aider* .amazonq .amazon-q* .augment* .bmad* .bolt
.clauderc .claude .claude-* .claude.json claude.md claude.*.md .cline* .codeium* .coderabbit.y*ml .codex .cody*
.continue* .copilot* copilot-instructions.md .crush* crush.json crush.md .cursor .cursor-* .cursorignore
.cursorindexingignore .cursorrules .devin* .factory .firebender* .gemini* gemini.md .goose* .gptme* gptme.toml
greptile.json .idx .junie* .kilo* .kiro* .lovable .mcp .mcp.json mcp.json .mentat* .openhands* .opencode*
opencode.json opencode.jsonc .ona .pearai .plandex* .pr_agent.toml .qodo* .qwen* qwen.md .replit* replit.md replit.nix
.roo* .rovo* .ruler .rules .serena .sourcegraph .specify .supermaven* .sweep.y*ml .tabby* .tabnine* .taskmaster .trae*
.v0* .void* .warp* warp.md .windsurf* .zencoder*
version-control: .git .gitattributes .gitconfig .gitmodules .git-credentials .githooks .hg .hgrc .svn .bzr .jj .sl
.husky lefthook*.y*ml lefthook*.toml lefthook*.json .lefthook* .overcommit.y*ml .pre-commit-config.y*ml
.pre-commit-hooks.y*ml .simple-git-hooks* simple-git-hooks.*
integration: .github .gitea .forgejo .gitlab .gitlab-ci.y*ml .appveyor.y*ml appveyor.y*ml azure-pipelines.y*ml
bitbucket-pipelines.y*ml .buildkite .circleci .cirrus.y*ml .drone.y*ml jenkinsfile .semaphore .travis.y*ml
.woodpecker*
packages: .npmrc .yarnrc* .yarn .pnpmfile.*js .pnp.*js bunfig.toml .bunfig.toml .corepack.env .pypirc .pip pip.conf
.condarc .cargo .bundle .gemrc .mvn .m2 .sbtopts .jvmopts .gradle sitecustomize.py usercustomize.py *.pth
shells: .bash* .profile .login .logout .zsh* .zprofile .zlogin .zlogout .ksh* .mksh* .csh* .tcsh* .fish .inputrc
.xprofile .xinitrc .xserverrc .xsession* .pam_environment .env .env.* .envrc .direnv* .mise* mise.toml mise.*.toml
.tool-versions .asdfrc devbox.json .config .local
tools: .vimrc .gvimrc .vim .exrc .nvimrc .nvim.lua .emacs* .dir-locals*.el .spacemacs* .nanorc .gdbinit .gdbearlyinit
.lldbinit* .irbrc .pryrc .rdebugrc .pdbrc* .pythonrc* .ipython .jupyter .rprofile .renviron .noderc* .node_repl*
.screenrc .tmux.conf .wgetrc .curlrc .netrc _netrc .lessfilter .lesskey .mailcap .psqlrc .pgpass .sqliterc .my.cnf
.ripgreprc .ackrc .agignore .ctags* .watchmanconfig .terraformrc .vagrant .ansible.cfg ansible.cfg .ssh .gnupg .aws
.azure .gcloud .kube .docker .dockercfg *.pem *.key
editors: .vscode* *.code-workspace .idea .fleet .zed .nova .vs .theia .che devfile.yaml .devfile.yaml .devcontainer*
.gitpod.* .settings *.sublime-project *.sublime-workspace
desktops: autorun.inf desktop.ini folder.htt .directory *.desktop *.lnk *.scf
scanners: .gitleaks* .secrets.baseline .trufflehog* .gitguardian.y*ml .semgrep* .snyk .trivyignore* .checkov*
.talismanrc .bandit .grype.y*ml .osv-scanner.toml osv-scanner.toml
"""
PLANTED = frozenset(name for name in _PLANTED_TEXT.split() if not name.endswith(":"))
"""Names that make a tool run code, obey or look away when a tree is merely opened (threat D), by the kind of tool.

Patterns for each segment of a path, case-folded. What a person starts by name (a test, a build script) is not here."""
_PLANTED_NAME = re.compile("|".join(map(translate, sorted(PLANTED))))

# NTFS and FAT keep a second name of each file: six characters of its own or two and a hash, `~` and a number.
_SHORT = re.compile(r"([^.~]{1,6})~[0-9]{1,6}(\.[^.]{0,3})?")
_HASHED = re.compile(r"[^.~]{2}[0-9a-f]{4}")


def _stem(pattern: str) -> str:
    name = pattern.partition("*")[0].lstrip(".")
    return (name.rpartition(".")[0] or name).replace(".", "")[:6]


_STEMS = frozenset(_stem(name) for name in PLANTED if "*" not in name)
_PREFIXES = tuple({_stem(name) for name in PLANTED if "*" in name} - {""})
_HASHED_STEMS = frozenset(stem[:2] for stem in {*_STEMS, *_PREFIXES})


def is_planted(path: str) -> bool:
    """Whether a file is configuration that a tool obeys unasked."""
    return any(_is_planted_name(segment) for segment in collision_key(path).split("/"))


@lru_cache(maxsize=16_384)  # the files of a repository share few directory names
def _is_planted_name(segment: str) -> bool:
    return _is_short_form(segment) or _PLANTED_NAME.fullmatch(segment) is not None


def _is_short_form(segment: str) -> bool:
    """Whether a segment may be the short name of a planted file, as `git~1` is of `.git`."""
    match = _SHORT.fullmatch(segment)
    if match is None:
        return False
    stem = match[1]
    is_hashed = _HASHED.fullmatch(stem) is not None and stem[:2] in _HASHED_STEMS
    return is_hashed or stem in _STEMS or stem.startswith(_PREFIXES)


def _whole_reason(path: str) -> str | None:
    if not path:
        return "empty"
    if len(path) > MAX_PATH_BYTES:  # before anything that takes time per character
        return "too_long"
    if reason := next(filter(None, map(_character_reason, path)), None):
        return reason
    if "\\" in path:
        return "backslash"
    if path.startswith("/"):
        return "absolute"
    if _DRIVE.search(path):
        return "drive"
    return "reserved_character" if not _RESERVED.isdisjoint(path) else None


def _character_reason(character: str) -> str | None:
    if character in _FILLERS or _VARIATIONS.match(character):
        return "invisible"
    return _CATEGORIES.get(unicodedata.category(character))


def _segment_reason(segment: str) -> str | None:
    if segment in ("", "."):
        return "dot_segment"
    if segment == "..":
        return "parent"
    if segment[-1] == "." or segment.strip() != segment:
        return "trailing_dot_space"
    if segment.split(".", 1)[0].rstrip(" ").casefold() in _DEVICE_NAMES:
        return "device_name"
    if len(segment.encode()) > MAX_SEGMENT_BYTES:
        return "segment_too_long"
    return None


DEFAULT_MAX_TREE_BYTES = 20 * 1024 * 1024
DEFAULT_MAX_TREE_FILES = 5_000


def check_tree(
    files: Mapping[str, bytes], *, max_bytes: int = DEFAULT_MAX_TREE_BYTES, max_files: int = DEFAULT_MAX_TREE_FILES
) -> dict[str, bytes]:
    """Return files under their checked names; both limits are inclusive.

    Raises:
        PathRefusedError: a name breaks a rule (the sender's fault).
        TreeRefusedError: `too_many_files`, `too_many_bytes`, `name_collision` for two names that some file system
            treats as one, `file_as_directory` for a file below another file (the sender's fault).
    """
    if len(files) > max_files:
        raise TreeRefusedError("too_many_files", "", f"{len(files)} files, at most {max_files}")
    total = sum(map(len, files.values()))
    if total > max_bytes:
        raise TreeRefusedError("too_many_bytes", "", f"{total} bytes, at most {max_bytes}")
    names = NameSet()
    return {names.add(raw): data for raw, data in files.items()}


def with_parents(path: str) -> list[str]:
    """Return the directories of a path, the outermost first, and then itself."""
    segments = path.split("/")
    return ["/".join(segments[:depth]) for depth in range(1, len(segments) + 1)]


class NameSet:
    """File names added one by one, each checked by itself and against all the others."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, bool]] = {}

    def add(self, raw: str, *, is_file: bool = True) -> str:
        """Return the checked name of a file or directory; the same directory may be added again.

        Raises:
            PathRefusedError: the name breaks a rule (the sender's fault).
            TreeRefusedError: `name_collision` or `file_as_directory` (likewise).
        """
        path = check_path(raw)
        for directory in with_parents(path)[:-1]:
            self._claim(directory, is_file=False)
        self._claim(path, is_file=is_file)
        return path

    def _claim(self, name: str, *, is_file: bool) -> None:
        """Record a name; only a directory may occur twice, and only in one spelling."""
        key = collision_key(name)
        owner = self._owners.get(key)
        if owner is None:
            self._owners[key] = (name, is_file)
        elif owner[0] != name or (is_file and owner[1]):
            raise TreeRefusedError("name_collision", name, "two names differ only in case or in Unicode form")
        elif is_file or owner[1]:
            raise TreeRefusedError("file_as_directory", name, "a file and a directory have the same name")


UNKNOWN = "application/octet-stream"

# A closed table: the MIME tables of hosts differ, and the scan knows no other types.
MEDIA_TYPES: dict[str, str] = {
    "html": "text/html",
    "htm": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "cjs": "text/javascript",
    "json": "application/json",
    "map": "application/json",
    "webmanifest": "application/manifest+json",
    "xml": "application/xml",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "vtt": "text/vtt",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "ico": "image/x-icon",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "ttf": "font/ttf",
    "otf": "font/otf",
    "eot": "application/vnd.ms-fontobject",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
}

_SOURCE_EXTENSIONS_TEXT = """
ts mts cts tsx jsx vue svelte astro mdx scss sass less styl pcss njk liquid ejs hbs pug yml yaml toml glsl vert frag
wgsl
"""
SOURCE_EXTENSIONS = frozenset(_SOURCE_EXTENSIONS_TEXT.split())
"""Text that builds read and no release serves: it has no media type, so the scan refuses it among served files."""

_TEXT_TYPES = frozenset(
    {"application/json", "application/manifest+json", "application/xml", "image/svg+xml", "text/javascript"}
)


def extension_of(path: str) -> str:
    """Return a name's last extension in lower case, without the dot; empty if it has none."""
    return posixpath.splitext(posixpath.basename(path))[1][1:].lower()


def media_type_of(path: str) -> str:
    """Return a file's media type by its name; `application/octet-stream` if unknown."""
    return MEDIA_TYPES.get(extension_of(path), UNKNOWN)


def disposition_of(media_type: str) -> str:
    """Return the Content-Disposition header: unknown types are downloaded, never shown."""
    return "attachment" if media_type == UNKNOWN else "inline"


def is_text(media_type: str) -> bool:
    """Whether files of this type are text."""
    return media_type.startswith("text/") or media_type in _TEXT_TYPES


def is_text_file(path: str) -> bool:
    """Whether a file of this name is text, served or source."""
    return extension_of(path) in SOURCE_EXTENSIONS or is_text(media_type_of(path))


def content_type_of(media_type: str) -> str:
    """Return the Content-Type header; text is declared as the UTF-8 that the scan read."""
    return f"{media_type}; charset=utf-8" if is_text(media_type) else media_type


# Visitors get all of a plain site, and of a site with a build only what the build wrote. The sources are part of the
# release, so that the next edit starts from them. The served part is a pure function of the files and part of the
# release's digest, so scan, approval and server agree on it.

PACKAGE = "package.json"
INDEX = "index.html"
INSTALLED = "node_modules"
"""Where a package manager puts packages. No release holds any: each build installs them anew."""
WRITTEN = ("dist", "build", "out", "_site")
"""Where builds write. A build starts without them, so that no page of an older build stays."""
CONVENTIONAL = (*WRITTEN, "public")
"""Where a build's pages are looked for, in order. `public` comes last and is kept: for many tools it is a source."""

ValueT = TypeVar("ValueT")


def is_built(files: Mapping[str, bytes]) -> bool:
    """Whether a site's package.json has a build script."""
    return isinstance(part_of(package_of(files), "scripts").get("build"), str)


def public_of(files: Mapping[str, bytes]) -> str | None:
    """Return the directory that is served.

    Returns:
        Its path; empty for all files, as of a plain site or one whose package.json says
        `"pointsman": {"public": "."}`; None if a site with a build has no built pages.
    """
    if not is_built(files):
        return ""
    named = part_of(package_of(files), "pointsman").get("public")
    if named is None:
        return next((directory for directory in CONVENTIONAL if f"{directory}/{INDEX}" in files), None)
    return _named(named, files)


def sources_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that a build starts from: all but the output of the last one.

    A directory that package.json names is kept, as it may hold pages that no build writes.
    """
    public = public_of(files)
    is_named = "public" in part_of(package_of(files), "pointsman")
    if public not in WRITTEN or is_named:
        return dict(files)
    return {path: data for path, data in files.items() if not is_below(path, public)}


def served_part(files: Mapping[str, ValueT], public: str) -> dict[str, ValueT]:
    """Return the served files by the paths that visitors request."""
    if not public:
        return dict(files)
    return {path[len(public) + 1 :]: value for path, value in files.items() if is_below(path, public)}


def is_below(path: str, directory: str) -> bool:
    """Whether a file lies below a directory, at any depth."""
    return path.startswith(f"{directory}/")


def package_of(files: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Return a site's package.json; empty if it is missing or malformed."""
    try:
        package = json.loads(files.get(PACKAGE, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return package if isinstance(package, dict) else {}


def part_of(package: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return one object of a package.json; empty if there is none."""
    part = package.get(name)
    return part if isinstance(part, dict) else {}


def _named(named: object, files: Mapping[str, bytes]) -> str | None:
    if named == ".":
        return ""
    try:
        public = check_path(named) if isinstance(named, str) else ""
    except PathRefusedError:
        return None
    return public if public and any(is_below(path, public) for path in files) else None
