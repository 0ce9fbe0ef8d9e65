"""What a role may do, and which role somebody's groups give them."""

import pytest

from producers.errors import SignInRefusedError
from producers.use_cases.people import SCOPES_OF, Grant, Identity, Role, choose_grant, name_of, parse_grant
from producers.use_cases.tenants import Caller, Scope

EVERYTHING = {Scope.READ, Scope.SUBMIT, Scope.APPROVE, Scope.ADMIN}
GRANTS = {
    "see": Grant("acme", Role.VIEWER),
    "lead": Grant("acme", Role.APPROVER),
    "ops": Grant("acme", Role.OPERATOR),
    "else": Grant("other", Role.VIEWER),
}


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, {Scope.READ}),
        (Role.EDITOR, {Scope.READ, Scope.SUBMIT}),
        (Role.APPROVER, {Scope.READ, Scope.SUBMIT, Scope.APPROVE}),
        (Role.ADMIN, EVERYTHING),
        (Role.OPERATOR, EVERYTHING | {Scope.OPERATE}),
    ],
)
def test_a_role_may_do_this_and_nothing_else(role: Role, may: set[Scope]) -> None:
    caller = Caller("acme", "alice", SCOPES_OF[role], is_person=True)
    assert {scope for scope in Scope if caller.may(scope)} == may


def test_the_highest_role_of_somebodys_groups_counts() -> None:
    assert choose_grant(["see", "unknown", "lead"], GRANTS) == Grant("acme", Role.APPROVER)
    assert choose_grant(["ops", "see"], GRANTS).role is Role.OPERATOR


@pytest.mark.parametrize("groups", [[], ["unknown"], ["SEE"], ["see", "else"]])
def test_without_one_tenant_nobody_gets_in(groups: list[str]) -> None:
    with pytest.raises(SignInRefusedError):
        choose_grant(groups, GRANTS)


@pytest.mark.parametrize("text", ["acme", "acme:boss", ":viewer", "Acme Inc:viewer", "acme:viewer:viewer", ""])
def test_a_grant_is_a_tenant_and_a_role(text: str) -> None:
    assert parse_grant("acme:editor") == Grant("acme", Role.EDITOR)
    with pytest.raises(ValueError, match="TENANT:ROLE"):
        parse_grant(text)


@pytest.mark.parametrize(
    "name", ["alice@example.org", "Alice Doe", "a/b:c <script>", "\x00\n", "x" * 900, "key:acme/k"]
)
def test_a_name_in_the_audit_trail_is_one_short_word_and_nobody_else_s(name: str) -> None:
    someone, other = (Identity("https://id.example", subject, name, ()) for subject in ("1", "2"))
    plain = name_of(someone, is_taken=False)
    assert 0 < len(plain) <= 64
    assert not set(plain) & set(" /:<>\n\x00#")
    taken = {name_of(someone, is_taken=True), name_of(other, is_taken=True)}
    assert len(taken | {plain}) == 3
