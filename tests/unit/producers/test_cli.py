import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from monitoring.heartbeat import beat
from producers.cli import _MODULE_OF, EXAMPLES, PANELS, app
from producers.commands.context import print_table, wants_json
from workers.main import parse_arguments
from workers.runs.alone import _parser

ROOT = Path(__file__).parents[3]
COMMANDS = ROOT / "producers" / "commands"
UNREACHABLE = "postgresql://nobody@127.0.0.1:1/none"
SOME_ID = "6b1b1f0e-0000-4000-8000-000000000000"


def run(*arguments: str, **environment: str) -> Result:
    nothing = {"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent"}
    return CliRunner().invoke(app, arguments, env={**nothing, **environment}, prog_name="pointsman")


def commands() -> Iterator[tuple[str, Any]]:
    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        yield path, command
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, f"{path} {name}")

    return walk(typer.main.get_command(app), "pointsman")


def test_no_command_wants_a_whole_id() -> None:
    whole = {path for path, command in commands() for one in command.params if "UUID" in one.bare_type()}
    assert whole == set()


def test_every_command_tells_what_it_does_and_every_option_what_it_is_for() -> None:
    silent = [path for path, command in commands() if not command.help]
    silent += [
        f"{path} --{option.name}"
        for path, command in commands()
        for option in command.params
        if option.param_type_name == "option" and not option.help
    ]

    assert silent == []


def leaves() -> dict[str, Any]:
    """Every command that does something, by its words."""
    found = {path.removeprefix("pointsman").strip(): command for path, command in commands()}
    return {words: command for words, command in found.items() if not getattr(command, "commands", None)}


PROGRAMS = {"up", "demo", "worker", "api", "router", "gateway", "dispatcher", "exporter", "mirror", "fake-provider"}
"""These run until they are stopped."""
OWN_FORMAT = {"ladder": "JSON lines", "audit export": "JSON lines", "broker acl": "an ACL file"}
"""These print a format that another program asks for."""


def test_programs_can_read_whatever_a_command_prints() -> None:
    without = {
        words
        for words, command in leaves().items()
        if "--json" not in [name for p in command.params for name in p.opts]
    }

    assert without - {"doctor"} == PROGRAMS | set(OWN_FORMAT)


def test_every_command_stands_in_one_of_the_panels_and_what_comes_first_is_shown_first() -> None:
    root = typer.main.get_command(app)
    known = getattr(root, "commands", {})
    panels = [known[name].rich_help_panel for name in root.list_commands(None)]  # type: ignore[attr-defined]

    assert [panel for panel, before in zip(panels, [None, *panels], strict=False) if panel != before] == list(PANELS)


def test_every_example_of_the_help_is_a_right_use_of_its_command() -> None:
    real = {"ID": SOME_ID, "GATE": SOME_ID, "RELEASE": SOME_ID}
    known = leaves()
    for words, lines in EXAMPLES.items():
        for line in lines:
            program, *arguments = shlex.split(line.split(" > ")[0], comments=True)
            own = [part for part in words.split() if part != "prompt"]
            assert (program, arguments[: len(own)]) == ("pointsman", own), line
            rest = [real.get(argument, argument) for argument in arguments[len(own) :]]
            exists = not re.search(r"\./|\.(yaml|jsonl?|diff|md)\b|--dir", line)  # a path would have to be there
            if exists and words in known:
                known[words].make_context(words, list(rest))


def test_completion_can_be_installed_and_completes_commands() -> None:
    shown = run(_POINTSMAN_COMPLETE="source_bash")  # `--show-completion` asks which shell it runs under: CI has none
    done = run(_POINTSMAN_COMPLETE="complete_bash", COMP_WORDS="pointsman web", COMP_CWORD="1")

    assert shown.exit_code == 0
    assert "_POINTSMAN_COMPLETE=complete_bash" in shown.stdout
    assert "webhook" in done.stdout.split()


def test_completion_of_what_the_ledger_knows_is_silent_where_there_is_none() -> None:
    done = run(
        _POINTSMAN_COMPLETE="complete_bash",
        COMP_WORDS="pointsman job ",
        COMP_CWORD="2",
        POINTSMAN_LEDGER__URL=UNREACHABLE,
    )

    assert (done.stdout.strip(), done.stderr.strip()) == ("", "")


def test_it_tells_its_version() -> None:
    assert run("--version").stdout.startswith("pointsman 0.")


@pytest.mark.parametrize(
    ("arguments", "needless"),
    [
        (("--version",), {"pydantic", "rich", "yaml", "routing", "sqlalchemy", "producers.commands"}),
        (("--show-completion", "bash"), {"pydantic", "routing", "sqlalchemy", "producers.commands"}),
        (("doctor", "--help"), {"sqlalchemy", "celery", "redis", "docker", "httpx2", "producers.doctor"}),
        (("worker", "--check"), {"sqlalchemy", "celery", "redis", "httpx2", "workers"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_imports_nothing_that_it_does_not_use(arguments: tuple[str, ...], needless: set[str]) -> None:
    program = f"""
import sys
from producers.cli import app
app({arguments!r}, standalone_mode=False)
sys.exit(" ".join({needless!r} & set(sys.modules)))
"""
    named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # CI has no shell to detect
    named["POINTSMAN_WORKER__HEARTBEAT"] = "/nonexistent"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=named, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_every_command_of_every_module_is_found_by_its_name() -> None:
    """A command is imported by a table, which none of a module's may be missing from."""
    modules = {path.stem: import_module(f"producers.commands.{path.stem}") for path in COMMANDS.glob("[a-z]*.py")}
    for name, module in modules.items():
        groups = {key.removesuffix("_app") for key in vars(module) if key.endswith("_app")}
        own = typer.main.get_group(module.app).commands if hasattr(module, "app") else {}
        assert groups | set(own) == {command for command, home in _MODULE_OF.items() if home == name}
    assert {command for command, _ in leaves().items()} >= set(PROGRAMS)
    assert set(_MODULE_OF) == {name for names in PANELS.values() for name in names}


@pytest.mark.parametrize(
    ("command", "module", "options", "arguments"),
    [
        ("worker", "workers.main", ["--concurrency=3", "--pool=prefork", "--idle-children=0"], ["tools", "steps"]),
        ("worker", "workers.main", [], ["control"]),
        ("agent run", "workers.runs.alone", ["--task=Fix it", "--dir=.", "--url=http://x", "--json"], ["research"]),
        ("agent run", "workers.runs.alone", ["--task=-x", "--dir=.", "--token-file=t", "--dry-run"], ["painter"]),
    ],
)
def test_a_program_takes_the_place_of_its_command_with_all_that_was_said(
    command: str, module: str, options: list[str], arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda _, told, __: begun.append(told))
    run(*command.split(), *options, *arguments)
    assert begun == [[sys.executable, "-m", module, *options, "--", *arguments]]
    {"workers.main": parse_arguments, "workers.runs.alone": _parser().parse_args}[module](begun[0][3:])


def test_a_check_tells_by_its_exit_code_whether_the_worker_here_is_well(tmp_path: Path) -> None:
    refused = run("worker", "--check")
    assert refused.exit_code == 2
    assert "POINTSMAN_WORKER__HEARTBEAT" in refused.stderr
    file = tmp_path / "beat"
    assert run("worker", "--check", POINTSMAN_WORKER__HEARTBEAT=str(file)).exit_code == 1
    beat(file)
    assert run("worker", "--check", POINTSMAN_WORKER__HEARTBEAT=str(file)).exit_code == 0


@pytest.mark.parametrize("arguments", [("nope",), ("submit",), ("submit", "x", "--nope"), ("job", "no-uuid")])
def test_a_wrong_use_of_the_command_line_exits_with_two(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", "pwd"),
        ("job", SOME_ID),
        ("key", "create"),
        ("audit", "export"),
        ("migrate",),
    ],
    ids=" ".join,
)
def test_a_ledger_that_cannot_be_reached_is_one_clear_line(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, POINTSMAN_LEDGER__URL=UNREACHABLE)

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "pointsman: the ledger cannot be reached; is `pointsman up` running, or is POINTSMAN_LEDGER__URL right?"
    ]


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("POINTSMAN_LEDGR__URL", "POINTSMAN_LEDGR__URL is no setting of Pointsman"),
        ("POINTSMAN_LEDGER__URL", "POINTSMAN_LEDGER__URL: must be a URL"),
    ],
)
def test_a_wrong_setting_is_named_and_its_value_is_not_repeated(variable: str, message: str) -> None:
    result = run("jobs", **{variable: "a-secret"})

    assert result.exit_code == 2
    assert message in result.stderr
    assert "a-secret" not in result.output


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        (("gateway",), "POINTSMAN_GATEWAY__PEPPER"),
        (("api",), "POINTSMAN_PREVIEW__KEYS"),
        (("dispatcher",), "POINTSMAN_AUDIT__SIGNING_KEY"),
        (("audit", "verify"), "POINTSMAN_AUDIT__SIGNING_KEY"),
    ],
)
def test_a_program_that_lacks_a_secret_names_the_variable(arguments: tuple[str, ...], variable: str) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert f"{variable}:" in result.stderr


def test_the_doctor_says_of_each_part_what_to_do(tmp_path: Path) -> None:
    result = run(
        "doctor",
        POINTSMAN_LEDGER__URL=UNREACHABLE,
        POINTSMAN_BROKER__URL="redis://127.0.0.1:1/0",
        POINTSMAN_MIRROR__NPM="/nowhere/npm",
        POINTSMAN_BOX__ENGINE="unix:///nonexistent.sock",
        POINTSMAN_WORKER__GATEWAY_URL="http://127.0.0.1:1",
        POINTSMAN_EXPORTER__PORT="1",
        POINTSMAN_CONTENT_STORE__ROOT=str(tmp_path),
    )

    assert result.exit_code == 1
    found = [tuple(line.split(":")[0].split(None, 1)) for line in result.stdout.splitlines()]
    assert [finding for finding in found if finding[1] != "content store disk"] == [
        ("OK", "configuration"),
        ("OK", "prices"),
        ("FAIL", "ledger"),
        ("FAIL", "broker"),
        ("OK", "content store"),
        ("OK", "workspaces"),
        ("WARN", "preview keys"),
        ("FAIL", "gateway"),
        ("WARN", "exporter"),
        ("WARN", "package registry"),
        ("WARN", "box engine"),
    ]


def test_the_doctor_examines_no_chosen_server_and_says_so_in_a_line() -> None:
    server = {"POINTSMAN_URL": "https://pointsman.example.com", "POINTSMAN_KEY": "pmk_k"}
    said, told = run("doctor", **server), run("doctor", "--json", **server)
    assert (said.exit_code, told.exit_code) == (2, 2)
    assert "does not reach" in json.loads(told.stderr)["error"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("POINTSMAN_EXPORTER__PORT", "many"), ("POINTSMAN_TYPO__X", "1"), ("POINTSMAN_POLICY__PATH", "/nowhere.yaml")],
)
def test_the_doctor_names_the_setting_that_no_program_would_start_with(variable: str, value: str) -> None:
    result = run("doctor", "--json", **{variable: value})

    told = json.loads(result.stdout)
    assert (result.exit_code, told["verdict"]) == (1, "FAIL")
    (finding,) = told["findings"]
    assert finding["name"] == "configuration"
    assert variable in finding["seen"] or value in finding["seen"]


def test_an_image_cannot_be_built_without_an_engine_and_the_message_says_so() -> None:
    result = run("image", "build", "--json", POINTSMAN_BOX__ENGINE="unix:///nonexistent.sock")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "engine_missing: there is no socket /nonexistent.sock" in result.stderr


@pytest.mark.parametrize("arguments", [("scan", "{}"), ("render", "{}/spec.json", "--out", "{}/out")])
def test_a_path_that_does_not_exist_is_a_wrong_use_not_a_failed_check(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    result = run(*(argument.format(missing) for argument in arguments))

    assert result.exit_code == 2
    assert str(missing) in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.timeout(20)
@pytest.mark.parametrize("arguments", [("render", "{}", "--out", "{}.out"), ("apply", ".", "{}", "--out", "{}.out")])
@pytest.mark.parametrize("kind", ["fifo", "device", "link to a device", "directory"])
def test_what_is_no_plain_file_is_refused_unread(arguments: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    result = run(*(argument.format(path if "out" not in argument else tmp_path / "new") for argument in arguments))

    assert result.exit_code == 2
    assert f"{arguments[0]}: {path}: is no plain file" in result.stderr


def test_a_spec_that_breaks_a_rule_is_named_with_its_file(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text("{")
    result = run("render", str(spec), "--out", str(tmp_path / "out"))

    assert result.exit_code == 1
    assert f"render: {spec}: " in result.stderr
    assert "not JSON" in result.stderr


def test_a_link_of_a_spec_that_leads_nowhere_and_a_file_that_its_pages_need_are_noted(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    action = {"label": "Menu", "href": "menu.html"}
    elements = {
        "page": {"type": "Page", "props": {"title": "Shop"}, "children": ["hero"]},
        "hero": {
            "type": "Hero",
            "props": {"heading": "Bread", "actions": [action], "image": {"src": "hero.jpg", "alt": "Bread"}},
            "children": [],
        },
    }
    spec.write_text(json.dumps({"root": "page", "elements": elements}))
    result = run("render", str(spec), "--out", str(tmp_path / "out"))

    assert result.exit_code == 0, result.stderr
    assert "hero/props/actions/0/href: the site has no such page" in result.stdout
    assert "the pages need hero.jpg" in result.stdout


def test_a_scan_exits_with_one_on_findings_and_says_them_as_json(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="https://evil.example/x.js"></script>')
    result = run("scan", str(tmp_path), "--json")

    assert result.exit_code == 1
    assert {finding["rule"] for finding in json.loads(result.stdout)["findings"]} == {
        "script-host",
        "script-integrity",
    }
    assert not wants_json(), "the next command of this process speaks in words"


def test_ids_are_printed_whole_so_that_they_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("job", "state", "prompt"), [(SOME_ID, "awaiting_approval", "long " * 50)])

    head, row = capsys.readouterr().out.splitlines()
    assert row.split()[:2] == [SOME_ID, "awaiting_approval"]
    assert head.index("state") == row.index("awaiting_approval")


@pytest.mark.slow
def test_offline_commands_load_neither_broker_nor_ledger_nor_server() -> None:
    program = """
import sys
from producers.cli import app
for arguments in (["route", "Make the headline bigger"], ["scan", "clients/typescript"], ["--help"]):
    app(arguments, standalone_mode=False)
heavy = {"celery", "kombu", "sqlalchemy", "sqlmodel", "redis", "fastapi", "httpx2", "alembic"}
sys.exit(" ".join(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.stderr.strip() == ""


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"[]\n", "line 1: must be an object"),
        (b'{"prompt": "pwd"}\n\n{"id": "2"}\n', "line 3: the field 'prompt' is missing"),
        (b'{"prompt": "pwd", "preference": "nope"}\n', "line 1: preference: "),
        (b"{\n", "line 1: "),
        (b"\xff\n", "must be UTF-8"),
    ],
    ids=["no object", "no prompt", "a wrong signal", "no json", "no text"],
)
def test_a_batch_that_cannot_be_read_names_line_and_rule(content: bytes, rule: str, tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    batch.write_bytes(content)
    result = run("route", "--batch", str(batch))

    assert result.exit_code == 2
    assert f"route: {batch}" in result.stderr
    assert rule in result.stderr


def test_a_batch_line_may_hold_any_character_that_json_may(tmp_path: Path) -> None:
    batch = tmp_path / "batch.jsonl"
    batch.write_text('{"id": "1", "prompt": "pwd\u2028ls"}\n', encoding="utf-8")

    assert [json.loads(line)["id"] for line in run("route", "--batch", str(batch)).stdout.splitlines()] == ["1"]


def test_a_scan_names_planted_files_and_the_keys_of_the_installation(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("obey")
    (tmp_path / "a.json").write_text('{"a": "' + "k9" * 20 + '"}')
    result = run("scan", str(tmp_path), "--json", POINTSMAN_PREVIEW__KEYS=f'["{"k9" * 20}"]')

    assert {(one["file"], one["rule"]) for one in json.loads(result.stdout)["findings"]} == {
        ("CLAUDE.md", "planted-file"),
        ("a.json", "known-key"),
    }


def test_a_command_ends_without_a_search_for_cycles_and_reads_certificates_only_for_https() -> None:
    program = """
import gc, sys
sys.argv = ["pointsman", "--version"]
from producers import cli
try:
    cli.main()
except SystemExit:
    pass
from pointsman_client import Client
kept = []
for scheme in ("http", "https"):
    with Client(scheme + "://127.0.0.1:1", "pmk_x") as client:
        pool = client._http._transport._pool
        kept.append((len(pool._ssl_context.get_ca_certs()) > 0, client._http.follow_redirects))
print(gc.get_freeze_count() > 0, kept)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "True [(False, False), (True, False)]", done.stderr
