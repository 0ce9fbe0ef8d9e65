"""The non-deviation contract of seed 004: each MUST, each MUST NOT and each point of the review gate, one by one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from routing.clarify import ladder, replies
from routing.clarify.ladder import (
    ArbiterReply,
    ArbiterRequest,
    Failure,
    HandledByTier,
    LadderFlags,
    LadderState,
    Outcome,
    PreGate,
    Scope,
    Turn,
    act_on_confidence,
    climb_ladder,
    pre_gate,
)
from routing.clarify.questions import COMMANDS, Clarification, climb
from routing.clarify.replies import AmbiguityReason, ArbitrationConfidence, Signal, canonicalize_command_input
from tests.unit.routing.clarify.conversation import (
    A2_FIRST,
    LINKS,
    RECENT,
    UNSURE,
    WIDGET,
    Conversation,
    event_names,
    options_of,
    sure,
)

pytestmark = pytest.mark.req("L-027")

ROUTING = Path(ladder.__file__).parent
MODULES = ("ladder", "questions", "replies")
UNRESOLVED = ["ope panel d", "panel", "open panel", "close panel", "close panel d", "oepn recnt", "show dashbord"]
UNRESOLVED += ["close sidebar", "xyzzy", "7", "panle", "", "not the first"]
UNRESOLVED += ["fix the panel in src/app.ts, update the tests and deploy it"]


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse((ROUTING / f"{module}.py").read_text(encoding="utf-8"))


def calls_of(name: str, tree: ast.AST) -> list[ast.Call]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if called == name:
                found.append(node)
    return found


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def imports_of(module: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names} | {node.module or ""}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


# --- the contract itself ---------------------------------------------------------------------------------------------


@pytest.mark.req("L-027")
def test_every_clause_of_the_contract_is_named_by_a_test_of_this_module() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    named = {mark for line in re.findall(r"mark\.req\(([^)]*)\)", source) for mark in re.findall(r"L-\d{3}", line)}
    assert {f"L-{number:03}" for number in (*range(28, 46), *range(47, 50))} <= named


# --- MUST ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("L-028", "L-043", "L-007", "L-035", "L-024", "L-102", "L-070", "L-068")
@pytest.mark.parametrize("reply", [sure("a2"), sure("zz"), *Failure])
@pytest.mark.parametrize("said", UNRESOLVED)
def test_must_climb_one_ladder_rules_then_model_then_clarifier(said: str, reply: ArbiterReply) -> None:
    talk = Conversation(reply=reply)
    result = talk.say(said)
    assert (len(talk.asked), result.outcome, talk.executed) == (1, Outcome.CLARIFY, [])


@pytest.mark.req("L-029", "L-071", "L-039", "L-086")
@pytest.mark.parametrize("said", UNRESOLVED)
def test_must_bound_the_pool_to_the_active_options_whatever_commands_there_are(said: str) -> None:
    talk = Conversation(LINKS, other=WIDGET, commands=("open recent", "close panel", "ope panel d2", "panels"))
    talk.say(said)
    assert talk.pools == [set(LINKS.ids)]


@pytest.mark.req("L-086")
def test_a_command_is_in_the_pool_only_as_an_option_that_is_there_anyway() -> None:
    options = options_of("Open Recent", "Close Recent")
    talk = Conversation(options)
    talk.say("recent")
    assert [option.label for option in talk.asked[0].candidates] == ["Open Recent", "Close Recent"]


@pytest.mark.req("L-029")
@pytest.mark.parametrize("outside", ["w2", "open recent", "", "A2", "a2 ", "none of these"])
def test_must_take_an_answer_outside_the_pool_for_an_abstention(outside: str) -> None:
    talk = Conversation(reply=sure(outside, 0.99), auto=True, other=WIDGET)
    result = talk.say("ope panel d")
    assert (result.outcome, result.order, talk.executed) == (Outcome.CLARIFY, LINKS.ids, [])
    assert result.events[-1].reason == "abstain"


@pytest.mark.req(
    "L-030", "L-048", "L-101", "L-089", "L-007", "L-004", "L-021", "L-087", "L-090", "L-151", "L-137", "L-146"
)
@pytest.mark.parametrize("failure", [*Failure, *UNSURE])
def test_must_not_destroy_on_timeout_rate_limited_transport_error_abstain_low_confidence(failure: ArbiterReply) -> None:
    talk = Conversation(reply=failure, auto=True, other=WIDGET)
    result = talk.say("can you ope panel d pls")
    assert (result.outcome, result.handled, result.order) == (Outcome.CLARIFY, True, LINKS.ids)
    assert (result.auto_execute, talk.executed, talk.state.active) == (False, [], LINKS)


@pytest.mark.req("L-031", "L-012", "L-055", "L-098", "L-011", "L-056")
def test_must_use_the_one_canonicaliser_and_the_one_classifier() -> None:
    defined = [function.name for path in ROUTING.glob("*.py") for function in functions_of(tree_of(path.stem))]
    for name in ("canonicalize_command_input", "classify_arbitration_confidence", "match_options", "pre_gate"):
        assert defined.count(name) == 1
    assert {name for name in defined if "confidence" in name} == {
        "classify_arbitration_confidence",
        "act_on_confidence",
    }
    assert {name for name in defined if "canonical" in name or "normal" in name} == {
        "canonicalize_command_input",
        "canonicalize_label",
        "normalized",
    }
    for module in MODULES:
        functions = [function for function in functions_of(tree_of(module)) if function.name != "_phrases"]
        for forbidden in ("lower", "casefold", "upper", "normalize", "split", "strip", "translate", "sub"):
            assert not any(calls_of(forbidden, function) for function in functions), (module, forbidden)
        deciding = {function.name for function in functions if calls_of("ArbitrationConfidence", function)}
        assert deciding <= {"classify_arbitration_confidence"}, module
    for name in ("ladder", "questions"):
        assert "routing.clarify.replies.canonicalize_command_input" in imports_of(name)
    talk = Conversation()
    assert talk.say("Please OPEN  recent, thanks!").outcome is Outcome.ESCAPE
    assert [one.command for one in talk.dispatched] == ["open recent"]
    for other in ("please ope recent", "open recents", "open the recent"):
        assert Conversation().say(other).outcome is Outcome.CLARIFY, other
    assert Conversation(WIDGET, other=LINKS).say("Please PANEL  d from the chat!").option == LINKS.options[1]


@pytest.mark.req("L-056", "L-017", "L-008")
def test_must_compute_the_canonical_value_once_and_pass_it_on() -> None:
    tree = tree_of("ladder")
    (call,) = calls_of("canonicalize_command_input", tree)
    climb = next(function for function in functions_of(tree) if function.name == "climb_ladder")
    assert call in ast.walk(climb)
    for name in ("pre_gate", "resolve_scope", "match_options", "match_command", "classify_arbitration_confidence"):
        (used,) = calls_of(name, climb)
        assert isinstance(used.args[0], ast.Name)
        assert used.args[0].id == "text"


@pytest.mark.req("L-008", "L-031", "L-038", "L-010", "L-046")
@pytest.mark.parametrize("said", [*UNRESOLVED, "open recent", "show panel", "Please  OPEN panels", "Panel D", "none"])
def test_whoever_asks_a_question_leaves_every_reply_to_the_ladder_as_it_was_written(said: str) -> None:
    asked = Clarification(question="Which?", state=LadderState(active=LINKS, other=WIDGET))
    flags = LadderFlags(llm_enabled=True)
    requests: list[ArbiterRequest] = []

    def arbiter(request: ArbiterRequest) -> ArbiterReply:
        requests.append(request)
        return sure("a2", 0.7)

    decided = climb(said, asked, arbiter=arbiter, flags=flags)
    wanted = climb_ladder(said, asked.state, arbiter=arbiter, read_flags=lambda: flags, commands=COMMANDS)
    assert decided == wanted
    assert requests[: len(requests) // 2] == requests[len(requests) // 2 :]
    assert decided.handled


@pytest.mark.req("L-008", "L-056", "L-010", "L-046")
def test_nothing_but_the_ladder_decides_about_a_reply() -> None:
    deciders = {
        (path.stem, function.name)
        for path in ROUTING.glob("*.py")
        for function in functions_of(tree_of(path.stem))
        if calls_of("LadderResult", function)
    }
    assert deciders == {
        ("ladder", "climb_ladder"),
        ("ladder", "act_on_confidence"),
        ("ladder", "_execute"),
        ("ladder", "_unresolved_hook"),
        ("questions", "choose"),  # an option named by its id, not by a reply
    }
    assert not calls_of("choose", tree_of("questions"))


@pytest.mark.req("L-032", "L-076", "L-083", "L-103")
def test_must_keep_the_loop_guard_one_call_per_cycle() -> None:
    talk = Conversation(reply=sure("a2", 0.7))
    for said in ("ope panel d", "ope panel d", "ope panel e", "ope panel d"):
        talk.say(said)
    assert len(talk.asked) == 3


@pytest.mark.req("L-033", "L-022", "L-051", "L-069")
def test_must_enter_arbitration_from_one_hook_after_the_matcher() -> None:
    sites = {
        (path.stem, function.name)
        for path in ROUTING.glob("*.py")
        for function in functions_of(tree_of(path.stem))
        if calls_of("arbiter", function)
    }
    assert sites == {("ladder", "try_llm_last_chance")}
    assert len(calls_of("arbiter", tree_of("ladder"))) == 1
    callers = [
        function.name for function in functions_of(tree_of("ladder")) if calls_of("try_llm_last_chance", function)
    ]
    assert callers == ["_unresolved_hook"]
    hooks = [function.name for function in functions_of(tree_of("ladder")) if calls_of("_unresolved_hook", function)]
    assert hooks == ["act_on_confidence"]
    assert len(calls_of("_unresolved_hook", tree_of("ladder"))) == 1
    climb = next(function for function in functions_of(tree_of("ladder")) if function.name == "climb_ladder")
    (match,), (act,) = calls_of("match_options", climb), calls_of("act_on_confidence", climb)
    assert match.lineno < act.lineno


@pytest.mark.req("L-034")
def test_must_keep_the_suggested_order_when_the_guard_skips_the_call() -> None:
    talk = Conversation(reply=sure("a2", 0.7))
    orders = [talk.say("ope panel d").order for _ in range(3)]
    assert (orders, len(talk.asked)) == ([A2_FIRST] * 3, 1)


@pytest.mark.req("L-070")
@pytest.mark.parametrize("reason", AmbiguityReason)
def test_must_ask_the_model_whatever_the_reason(reason: AmbiguityReason) -> None:
    talk = Conversation()
    talk.say("Links Panel D", known=reason)
    assert [request.reason for request in talk.asked] == [reason]


@pytest.mark.req("L-036", "L-044", "L-025", "L-094")
@pytest.mark.parametrize("cue", ["from chat", "in chat", "from the chat", "in the chat"])
def test_must_read_a_scope_cue_before_any_widget_bypass(cue: str) -> None:
    talk = Conversation(WIDGET, other=LINKS, reply=sure("a2", 0.7))
    result = talk.say(f"panel d {cue}")
    assert (result.option, talk.executed, result.handled_by_tier) == (LINKS.options[1], ["a2"], HandledByTier.SCOPE_CUE)
    assert Conversation(WIDGET, other=LINKS).say("panel d").option == WIDGET.options[1]
    widget = Conversation(WIDGET, other=LINKS, reply=sure("a2", 0.7))
    assert widget.say(f"weathr {cue}").handled_by_tier is HandledByTier.SCOPE_CUE


@pytest.mark.req("L-037", "L-045")
def test_must_not_mix_scopes_or_pass_widget_candidates_into_a_chat_call() -> None:
    talk = Conversation(WIDGET, other=LINKS)
    talk.say("ope panel d from chat")
    assert talk.pools == [set(LINKS.ids)]


# --- MUST NOT --------------------------------------------------------------------------------------------------------


@pytest.mark.req("L-038", "L-017")
def test_must_not_gate_by_anything_but_the_shared_classification() -> None:
    """No pattern and no word list stands in the module that branches."""
    assert "re" not in imports_of("ladder")
    act = next(function for function in functions_of(tree_of("ladder")) if function.name == "act_on_confidence")
    tests = [ast.unparse(node.test) for node in ast.walk(act) if isinstance(node, ast.If)]
    assert tests == ["confidence.signal is Signal.UNRESOLVED", "confidence.signal is Signal.DOWNSTREAM"]
    listed = (node for node in ast.walk(tree_of("ladder")) if isinstance(node, ast.Set | ast.List))
    assert [node for node in listed if sum(map(_is_text, node.elts)) > 1] == []


@pytest.mark.req("L-068")
@pytest.mark.parametrize(("signal", "asked"), [(Signal.UNRESOLVED, 1), (Signal.OPTION, 0), (Signal.DOWNSTREAM, 0)])
def test_the_classification_alone_decides_whether_the_model_is_asked(signal: Signal, asked: int) -> None:
    requests: list[ArbiterRequest] = []

    def arbiter(request: ArbiterRequest) -> ArbiterReply:
        requests.append(request)
        return Failure.ABSTAIN

    turn = Turn(
        message="first",
        text=canonicalize_command_input("first"),
        tier=HandledByTier.ACTIVE_OPTIONS,
        options=LINKS,
        rest=None,
        state=LadderState(active=LINKS),
        arbiter=arbiter,
        read_flags=lambda: LadderFlags(llm_enabled=True),
    )
    for number, (reason, count) in enumerate(product(AmbiguityReason, (0, 1, 2)), start=1):
        act_on_confidence(turn, ArbitrationConfidence(signal, winner="a1", reason=reason, match_count=count))
        assert len(requests) == number * asked


@pytest.mark.req("L-040", "L-141", "L-124")
@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("confidence", [0.5, 0.84, 0.85, 0.99])
@pytest.mark.parametrize("said", ["ope panel d", "panel", "close panel", "panle"])
def test_must_not_execute_an_answer_unless_every_gate_passes(said: str, confidence: float, auto: bool) -> None:
    talk = Conversation(reply=sure("a2", confidence), auto=auto)
    talk.say(said)
    assert talk.executed == (["a2"] if auto and confidence >= 0.85 and said == "ope panel d" else [])


@pytest.mark.req(
    "L-041", "L-043", "L-067", "L-018", "L-061", "L-063", "L-099", "L-017", "L-038", "L-060", "L-111", "L-049"
)
@pytest.mark.parametrize("llm", [True, False])
@pytest.mark.parametrize("said", UNRESOLVED)
def test_must_not_fall_through_or_execute_while_the_options_are_unresolved(said: str, llm: bool) -> None:
    talk = Conversation(llm=llm)
    result = talk.say(said)
    assert (result.outcome, result.handled_by_tier) == (Outcome.CLARIFY, HandledByTier.ACTIVE_OPTIONS)
    assert (result.handled, len(talk.asked), talk.dispatched, talk.executed) == (True, int(llm), [], [])


@pytest.mark.req("L-042", "L-057", "L-058")
def test_must_not_hold_a_dictionary_of_typos() -> None:
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
            mapped = [key for key, value in pairs if _is_text(key) and _is_text(value)]
            assert not mapped or module == "questions", (module, ast.unparse(node))
            assert not [pair for pair in _pairs(node) if replies._is_near(*pair)], (module, ast.unparse(node))


def _pairs(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield texts that stand for each other in a node: a mapping's, a pair's, or a call's by keyword."""
    found: Iterable[tuple[ast.AST | str | None, ast.AST]] = ()
    if isinstance(node, ast.Dict):
        found = zip(node.keys, node.values, strict=True)
    elif isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2:
        found = [(node.elts[0], node.elts[1])]
    elif isinstance(node, ast.Call):
        found = [(keyword.arg, keyword.value) for keyword in node.keywords]
    for key, value in found:
        name = key.value if isinstance(key, ast.Constant) else key
        if isinstance(name, str) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield name, value.value


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.req("L-042", "L-059", "L-120", "L-058")
@pytest.mark.parametrize(
    "said",
    [
        "ope panel d",
        "opne panel d",
        "cn yu opn panel d",
        "plz oepn panl d",
        "shwo panel d",
        "chek out panel d pls",
        "wuld u open panel d",
        "kindly vizualise panel d",
        "ouvre panel d",
        "gimme panel d",
    ],
)
def test_unseen_misspellings_stay_on_the_ladder(said: str) -> None:
    talk = Conversation(reply=sure("a2", 0.9))
    result = talk.say(said)
    assert (result.handled, len(talk.asked), result.order) == (True, 1, A2_FIRST)
    assert result.reason is AmbiguityReason.NO_DETERMINISTIC_MATCH


# --- review gate and insertion map -----------------------------------------------------------------------------------


@pytest.mark.req("L-047", "L-110", "L-116", "L-053")
def test_tiers_are_asserted_by_name_for_escape_and_for_active_options() -> None:
    escaped = Conversation(reply=sure("a1", 0.99), auto=True)
    left = escaped.say("open recent")
    assert (left.handled, left.handled_by_tier) == (False, None)
    assert event_names(left) == ["clarification_selection_bypassed_command_intent"]
    assert [one.handled_by_tier.value for one in escaped.dispatched] == ["command"]
    assert Conversation().say("ope panel d").handled_by_tier is HandledByTier.ACTIVE_OPTIONS
    assert Conversation().say("panel d").handled_by_tier is HandledByTier.ACTIVE_OPTIONS
    assert [tier.value for tier in HandledByTier] == ["tier_1b3", "scope_cue"]


@pytest.mark.req("L-049")
def test_an_unresolved_command_like_reply_tries_the_model_before_any_escape() -> None:
    talk = Conversation(RECENT, reply=Failure.TIMEOUT)
    assert talk.say("open recent").llm_called is True
    assert talk.dispatched == []


@pytest.mark.req("L-050", "L-060")
def test_the_pre_gate_has_two_exclusions_and_no_more() -> None:
    assert [gate.value for gate in PreGate] == ["exclude_question", "exclude_no_options", "continue"]
    for said in (*UNRESOLVED, "open recent", "panel d", "cancel", "panel d from chat"):
        text = canonicalize_command_input(said)
        assert pre_gate(text, Scope(HandledByTier.ACTIVE_OPTIONS, LINKS)) is PreGate.CONTINUE
    command = canonicalize_command_input("open recent")
    assert pre_gate(command, Scope(HandledByTier.ACTIVE_OPTIONS, None)) is PreGate.EXCLUDE_NO_OPTIONS
    strong = canonicalize_command_input("delete src/app.ts, run the tests and deploy https://acme.dev")
    assert pre_gate(strong, Scope(HandledByTier.ACTIVE_OPTIONS, LINKS)) is PreGate.CONTINUE
    question = canonicalize_command_input("what is panel d?")
    for options in (LINKS, None):
        assert pre_gate(question, Scope(HandledByTier.ACTIVE_OPTIONS, options)) is PreGate.EXCLUDE_QUESTION


@pytest.mark.req("L-064")
def test_the_pre_gate_cannot_reach_the_model() -> None:
    gate = next(function for function in functions_of(tree_of("ladder")) if function.name == "pre_gate")
    names = {node.id for node in ast.walk(gate) if isinstance(node, ast.Name)}
    assert {argument.arg for argument in gate.args.args} == {"text", "scope"}
    assert not names & {"arbiter", "try_llm_last_chance", "_unresolved_hook", "Turn"}


@pytest.mark.req("L-064", "L-007")
@pytest.mark.parametrize("said", ["Links Panel D", "panel d", "open recent", "what is panel d?", "cancel"])
def test_before_the_rules_have_failed_no_gate_asks_the_model(said: str) -> None:
    talk = Conversation()
    talk.say(said)
    assert talk.asked == []


@pytest.mark.req("L-121")
def test_the_ladder_is_routing_alone_and_knows_no_state_of_a_user_interface() -> None:
    imported = {name for module in MODULES for name in imports_of(module)}
    pure = (
        "__future__",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "json",
        "re",
        "typing",
        "pydantic",
        "routing",
    )
    assert {name for name in imported if name.split(".")[0] not in pure} == set()
    assert all(field in {"active", "other", "cycle", "repair"} for field in LadderState.model_fields)


@pytest.mark.req("L-053", "L-054")
def test_neither_dispatcher_nor_router_knows_the_arbiter() -> None:
    for module in ("replies", "../decision/router", "../decision/triggers", "../prompt/parsed_prompt"):
        imported = imports_of(module)
        assert not [name for name in imported if re.search("clarify.ladder|clarify.questions|Arbiter", name)]
    assert "arbiter" not in Path(replies.__file__).read_text(encoding="utf-8")
    assert replies.dispatch("oepn recent", ("open recent",)).command is None


@pytest.mark.req("L-017")
def test_the_ladder_takes_its_signals_from_the_shared_modules() -> None:
    assert "routing.clarify.replies.classify_arbitration_confidence" in imports_of("ladder")
