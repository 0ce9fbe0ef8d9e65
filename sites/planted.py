"""Names of files that make a tool run code, obey or look away when a tree is merely opened (threat D).

Patterns for each segment of a path, case-folded. What a person starts by name (a test, a build script) is not here.
"""

from __future__ import annotations

import re
from typing import Final

_AGENTS: Final = """
.agent .agents agent.md agents.md agents.*.md .aiassistant .aider* .amazonq .amazon-q* .augment* .bmad* .bolt .clauderc
.claude .claude-* .claude.json claude.md claude.*.md .cline* .codeium* .coderabbit.y*ml .codex .cody* .continue*
.copilot* copilot-instructions.md .crush* crush.json crush.md .cursor .cursor-* .cursorignore .cursorindexingignore
.cursorrules .devin* .factory .firebender* .gemini* gemini.md .goose* .gptme* gptme.toml greptile.json .idx .junie*
.kilo* .kiro* .lovable .mcp .mcp.json mcp.json .mentat* .openhands* .opencode* opencode.json opencode.jsonc .ona .pearai
.plandex* .pr_agent.toml .qodo* .qwen* qwen.md .replit* replit.md replit.nix .roo* .rovo* .ruler .rules .serena
.sourcegraph .specify .supermaven* .sweep.y*ml .tabby* .tabnine* .taskmaster .trae* .v0* .void* .warp* warp.md
.windsurf* .zencoder*
"""
_VERSION_CONTROL: Final = """
.git .gitattributes .gitconfig .gitmodules .git-credentials .githooks .hg .hgrc .svn .bzr .jj .sl .husky lefthook*.y*ml
lefthook*.toml lefthook*.json .lefthook* .overcommit.y*ml .pre-commit-config.y*ml .pre-commit-hooks.y*ml
.simple-git-hooks* simple-git-hooks.*
"""
_INTEGRATION: Final = """
.github .gitea .forgejo .gitlab .gitlab-ci.y*ml .appveyor.y*ml appveyor.y*ml azure-pipelines.y*ml
bitbucket-pipelines.y*ml .buildkite .circleci .cirrus.y*ml .drone.y*ml jenkinsfile .semaphore .travis.y*ml .woodpecker*
"""
_PACKAGES: Final = """
.npmrc .yarnrc* .yarn .pnpmfile.*js .pnp.*js bunfig.toml .bunfig.toml .corepack.env .pypirc .pip pip.conf .condarc
.cargo .bundle .gemrc .mvn .m2 .sbtopts .jvmopts .gradle sitecustomize.py usercustomize.py *.pth
"""
_SHELLS: Final = """
.bash* .profile .login .logout .zsh* .zprofile .zlogin .zlogout .ksh* .mksh* .csh* .tcsh* .fish .inputrc .xprofile
.xinitrc .xserverrc .xsession* .pam_environment .env .env.* .envrc .direnv* .mise* mise.toml mise.*.toml .tool-versions
.asdfrc devbox.json .config .local
"""
_TOOLS: Final = """
.vimrc .gvimrc .vim .exrc .nvimrc .nvim.lua .emacs* .dir-locals*.el .spacemacs* .nanorc .gdbinit .gdbearlyinit
.lldbinit* .irbrc .pryrc .rdebugrc .pdbrc* .pythonrc* .ipython .jupyter .rprofile .renviron .noderc* .node_repl*
.screenrc .tmux.conf .wgetrc .curlrc .netrc _netrc .lessfilter .lesskey .mailcap .psqlrc .pgpass .sqliterc .my.cnf
.ripgreprc .ackrc .agignore .ctags* .watchmanconfig .terraformrc .vagrant .ansible.cfg ansible.cfg .ssh .gnupg .aws
.azure .gcloud .kube .docker .dockercfg *.pem *.key
"""
_EDITORS: Final = """
.vscode* *.code-workspace .idea .fleet .zed .nova .vs .theia .che devfile.yaml .devfile.yaml .devcontainer*
.gitpod.* .settings *.sublime-project *.sublime-workspace
"""
_DESKTOPS: Final = "autorun.inf desktop.ini folder.htt .directory *.desktop *.lnk *.scf"
_SCANNERS: Final = """
.gitleaks* .secrets.baseline .trufflehog* .gitguardian.y*ml .semgrep* .snyk .trivyignore* .checkov* .talismanrc
.bandit .grype.y*ml .osv-scanner.toml osv-scanner.toml
"""

PLANTED: Final = frozenset(
    " ".join(
        (_AGENTS, _VERSION_CONTROL, _INTEGRATION, _PACKAGES, _SHELLS, _TOOLS, _EDITORS, _DESKTOPS, _SCANNERS)
    ).split()
)


# NTFS and FAT keep a second name of each file: six characters of its own or two and a hash, `~` and a number.
_SHORT: Final = re.compile(r"([^.~]{1,6})~[0-9]{1,6}(\.[^.]{0,3})?")
_HASHED: Final = re.compile(r"[^.~]{2}[0-9a-f]{4}")


def _stem(pattern: str) -> str:
    name = pattern.partition("*")[0].lstrip(".")
    return (name.rpartition(".")[0] or name).replace(".", "")[:6]


_STEMS: Final = frozenset(_stem(name) for name in PLANTED if "*" not in name)
_PREFIXES: Final = tuple({_stem(name) for name in PLANTED if "*" in name} - {""})
_HASHED_STEMS: Final = frozenset(stem[:2] for stem in {*_STEMS, *_PREFIXES})


def is_short_form(segment: str) -> bool:
    """Whether a segment may be the short name of a planted file, as `git~1` is of `.git`."""
    match = _SHORT.fullmatch(segment)
    if match is None:
        return False
    stem = match[1]
    is_hashed = _HASHED.fullmatch(stem) is not None and stem[:2] in _HASHED_STEMS
    return is_hashed or stem in _STEMS or stem.startswith(_PREFIXES)
