"""A person takes over by hand at a gate: what they change is theirs by name, on record, and somebody else decides."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from ledger.errors import GateRefusedError, NoOpenGateError
from ledger.store import Ledger
from routing.jobs import State
from sandbox.box_spec import BoxSpec, Target
from sandbox.errors import BoxLostError
from sandbox.local_box import LocalBox
from tests.factories import Shop
from tests.integration.runs.run_world import PROJECT, Yard
from workers.runs.shell import Person, ShellEnd, Shells

BOB = Person("bob", "Bob Smith <bob@acme.example>")
KEY = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


@pytest.fixture
def yard(shop: Shop, tmp_path: Path) -> Yard:
    shop.tenant("acme", overrides={"approval": {"requester_may_approve": False}})
    return Yard(shop, tmp_path)


@pytest.fixture
def at_gate(yard: Yard) -> UUID:
    run_id = yard.submit("Fix the broken header", priority="P0")
    yard.settle()
    assert yard.job(run_id).state == State.AWAITING_APPROVAL
    return run_id


Hold = Callable[..., ShellEnd]


@pytest.fixture
def hold(yard: Yard) -> Iterator[Hold]:
    with ExitStack() as stack:

        def held(run_id: UUID, work: Callable[[Path], Any], *, shown: bytes = b"", known: tuple[str, ...] = ()) -> Any:
            def open_box(services: Any, image: Any) -> LocalBox:
                box = LocalBox(BoxSpec(image="none", gateway=Target("", 1)))
                stack.callback(box.close)
                return box

            def attend(box: Any) -> bytes:
                work(box.workspace)
                return shown

            shells = Shells(yard.shop.ledger, yard.policy, yard.resources.runs, known)
            return shells.hold(run_id, BOB, tenant="acme", open_box=open_box, attend=attend, seconds=60)

        yield held


def test_what_a_person_changes_at_a_gate_is_their_commit_and_somebody_else_passes_it(
    yard: Yard, at_gate: UUID, hold: Hold
) -> None:
    head = yard.run(at_gate).head_commit
    assert head is not None

    def work(place: Path) -> None:
        (place / "src/app.ts").write_text("export const fixed = true;\n")
        (place / "README.md").write_text("# Mine\n")
        (place / ".github").mkdir()
        (place / ".github/ci.yaml").write_text("steal: all")

    shown = b"\x1b[1mbox\x1b[0m$ echo " + KEY.encode() + b" swordfish\r\nfixed\r\n"
    end = hold(at_gate, work, shown=shown, known=("swordfish",))

    assert (end.changed, end.refused) == (("src/app.ts",), "")
    assert [line.split(":")[0] for line in end.dropped] == [".github/ci.yaml", "README.md"]
    run, workspace = yard.run(at_gate), yard.workspace(at_gate)
    assert run.head_commit == end.commit != head
    assert workspace.changes(head, str(end.commit)) == {"src/app.ts": b"export const fixed = true;\n"}
    with workspace.store() as store:
        commit = store[str(end.commit).encode()]
        assert commit.author == commit.committer == b"Bob Smith <bob@acme.example>"  # type: ignore[attr-defined]
    gate = yard.open_gate(at_gate)
    (shell,) = gate.facts["shells"]
    assert (shell["by"], shell["commit"], shell["changed"]) == ("bob", end.commit, ["src/app.ts"])
    assert shell["said"].startswith("box$ echo ")
    assert shell["said"].endswith("\nfixed")
    assert not {KEY, "swordfish"} & set(shell["said"].split())

    for actor in ("bob", "cli"):  # who had the shell, and whoever decides at that terminal
        with pytest.raises(GateRefusedError, match="second person"):
            yard.decide(gate, actor=actor)
    yard.decide(gate, actor="carol")
    yard.settle()
    assert yard.job(at_gate).state == State.PUBLISHED
    assert yard.run(at_gate).scan == "passed"
    rows = yard.shop.rows(
        "SELECT action, actor FROM audit WHERE job_id = :id AND action ~ 'shell' ORDER BY seq", id=at_gate
    )
    assert [tuple(row) for row in rows] == [("gate_shell_opened", "bob"), ("gate_shell", "bob")]


def test_nobody_passes_what_was_changed_by_hand_since_they_looked_at_it(yard: Yard, at_gate: UUID, hold: Hold) -> None:
    looked_at = yard.open_gate(at_gate).facts["head"]
    hold(at_gate, lambda place: (place / "src/app.ts").write_text("export const mine = true;\n"))
    gate = yard.open_gate(at_gate)
    with pytest.raises(GateRefusedError, match="look at it again"):
        yard.decide(gate, actor="carol", seen=looked_at)
    yard.decide(gate, actor="carol", seen=gate.facts["head"])


def test_who_passed_the_work_at_another_gate_is_asked_again_about_what_was_changed_by_hand(
    yard: Yard, hold: Hold
) -> None:
    rule = "rules: {gates: [{name: looks, reason: The looks., labels: [looks]}]}\n"
    yard.projects.put("acme", "shop", f"{PROJECT.replace('HOME', str(yard.home))}{rule}", source="p", actor="operator")
    run_id = yard.submit("Fix the broken header", priority="P0", ticket={"title": "Header", "labels": ["looks"]})
    yard.settle()
    first = yard.open_gate(run_id)
    yard.decide(first, actor="carol")
    yard.settle()
    for text in ("mine", "mine again"):
        hold(run_id, lambda place, text=text: (place / "src/app.ts").write_text(text))
    second = yard.open_gate(run_id)
    yard.decide(second, actor="carol", seen=yard.run(run_id).head_commit)
    yard.settle()
    again = yard.open_gate(run_id)
    assert (again.key, again.reason) == (f"{first.key}_again", first.reason)
    yard.decide(again, actor="carol", seen=yard.run(run_id).head_commit)
    yard.settle()
    assert yard.job(run_id).state == State.PUBLISHED


def test_who_only_looks_may_still_decide(yard: Yard, at_gate: UUID, hold: Hold) -> None:
    head = yard.run(at_gate).head_commit
    assert hold(at_gate, lambda place: (place / "src/app.ts").read_text()) == ShellEnd(None, (), ())
    assert yard.run(at_gate).head_commit == head
    yard.decide(yard.open_gate(at_gate), actor="bob")


def test_what_is_written_under_a_decided_gate_is_no_part_of_the_run(yard: Yard, at_gate: UUID, hold: Hold) -> None:
    head = yard.run(at_gate).head_commit

    def work(place: Path) -> None:
        (place / "src/app.ts").write_text("late")
        yard.decide(yard.open_gate(at_gate), actor="carol")

    end = hold(at_gate, work)
    assert end.commit is None
    assert "decided meanwhile; the work is commit" in end.refused
    assert yard.run(at_gate).head_commit == head
    yard.settle()
    assert yard.job(at_gate).state == State.PUBLISHED
    with pytest.raises(NoOpenGateError):
        hold(at_gate, lambda place: None)


def test_a_shell_whose_box_is_lost_is_at_an_end_and_stands_in_nobody_s_way(
    yard: Yard, at_gate: UUID, hold: Hold
) -> None:
    def lose(place: Path) -> None:
        raise BoxLostError("the engine is gone")

    with pytest.raises(BoxLostError):
        hold(at_gate, lose)
    facts = yard.open_gate(at_gate).facts
    assert not facts["open_shells"]
    assert facts["shells"][-1]["refused"] == "it broke off: BoxLostError"


def test_a_key_of_the_installation_in_a_file_ends_a_shell_without_a_commit(
    yard: Yard, at_gate: UUID, hold: Hold
) -> None:
    head = yard.run(at_gate).head_commit
    end = hold(
        at_gate, lambda place: (place / "src/app.ts").write_text("swordfish-of-ours"), known=("swordfish-of-ours",)
    )
    assert end.commit is None
    assert "a key of this installation" in end.refused
    secret = hold(at_gate, lambda place: (place / "src/app.ts").write_text(f'const key = "{KEY}";\n'))
    assert secret.dropped == ("src/app.ts: secret",)
    assert yard.run(at_gate).head_commit == head


def test_work_by_hand_is_scanned_where_agents_changed_nothing(yard: Yard, hold: Hold) -> None:
    run_id = yard.submit("Fix the broken header", priority="P0")
    yard.settle()
    yard.shop.execute("UPDATE run_step SET changed = '[]' WHERE run_id = :id", id=run_id)
    yard.shop.execute("UPDATE run SET scan = NULL WHERE job_id = :id", id=run_id)
    hold(run_id, lambda place: (place / "src/app.ts").write_text("by hand"))
    yard.decide(yard.open_gate(run_id), actor="carol")
    yard.settle()
    assert (yard.job(run_id).state, yard.run(run_id).scan) == (State.PUBLISHED, "passed")


@pytest.mark.parametrize("is_committed", [False, True], ids=["before", "after the commit"])
def test_a_ledger_that_is_away_as_a_shell_ends_is_waited_for_and_told_once(
    yard: Yard, at_gate: UUID, hold: Hold, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    begin, fails = Ledger.begin, [2]

    @contextmanager
    def away(ledger: Ledger) -> Iterator[Any]:
        if fails[0] and not is_committed:
            fails[0] -= 1
            raise OperationalError("", {}, Exception("away"))
        with begin(ledger) as session:
            yield session
        if fails[0]:
            fails[0] -= 1
            raise OperationalError("", {}, Exception("the reply is lost"))

    def work(place: Path) -> None:
        (place / "src/app.ts").write_text("by hand")
        monkeypatch.setattr(Ledger, "begin", away)

    end = hold(at_gate, work)
    assert (end.refused, end.changed) == ("", ("src/app.ts",))
    assert yard.run(at_gate).head_commit == end.commit
    (shell,) = yard.open_gate(at_gate).facts["shells"]
    assert shell["commit"] == end.commit
    assert yard.shop.scalar("SELECT count(*) FROM audit WHERE job_id = :id AND action = 'gate_shell'", id=at_gate) == 1
