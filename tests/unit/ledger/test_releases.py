from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from ledger.releases import ReleaseFacts, choose_swept
from routing.policy.platform import Retention

DAY, HOUR = 86_400.0, 3_600.0
RULES = Retention(releases=2, days=10, draft_hours=48)


def fact(*, published_days: float | None = None, base: UUID | None = None, created_days: float = 365) -> ReleaseFacts:
    age = None if published_days is None else published_days * DAY
    return ReleaseFacts(uuid4(), base, age, created_days * DAY)


def test_the_newest_published_ones_are_kept_and_older_ones_given_up() -> None:
    facts = [fact(published_days=days) for days in (20, 30, 40, 50)]
    assert choose_swept(facts, RULES, active=facts[0].id, pending=()) == {facts[2].id, facts[3].id}


def test_what_was_published_within_the_days_is_kept_however_many_there_are() -> None:
    facts = [fact(published_days=days) for days in (1, 2, 3, 9.9, 10.1)]
    assert choose_swept(facts, RULES, active=facts[0].id, pending=()) == {facts[4].id}


def test_the_live_release_and_the_one_a_rollback_leads_to_are_kept_however_old() -> None:
    previous = fact(published_days=300)
    live = fact(published_days=200, base=previous.id)
    newer = [fact(published_days=days) for days in (20, 30, 40)]
    assert choose_swept([previous, live, *newer], RULES, active=live.id, pending=()) == {newer[2].id}


def test_an_abandoned_draft_goes_after_its_time_and_a_pending_one_never() -> None:
    abandoned, young, pending = fact(created_days=3), fact(created_days=1.9), fact(created_days=300)
    assert choose_swept([abandoned, young, pending], RULES, active=None, pending=[pending.id]) == {abandoned.id}


ages = st.floats(min_value=0, max_value=400)


@given(
    st.lists(st.tuples(st.none() | ages, ages, st.integers(0, 9)), max_size=10),
    st.integers(0, 9),
    st.sets(st.integers(0, 9)),
    st.builds(
        Retention,
        releases=st.integers(1, 5),
        days=st.floats(min_value=0, max_value=100),
        draft_hours=st.floats(min_value=1, max_value=100),
    ),
)
def test_live_previous_pending_and_young_are_never_given_up(
    drawn: list[tuple[float | None, float, int]], active: int, pending: set[int], rules: Retention
) -> None:
    ids = [uuid4() for _ in drawn]
    facts = [
        ReleaseFacts(ids[place], ids[base % len(ids)], None if published is None else published * DAY, created * DAY)
        for place, (published, created, base) in enumerate(drawn)
    ]
    live = facts[active] if active < len(facts) else None
    waiting = {ids[place] for place in pending if place < len(ids)}
    swept = choose_swept(facts, rules, active=live.id if live else None, pending=waiting)
    assert swept <= set(ids)
    assert not swept & waiting
    assert live is None or not swept & {live.id, live.base_release_id}
    assert not [one for one in facts if one.id in swept and one.created_seconds < rules.draft_hours * HOUR]
    published = [one for one in facts if one.published_seconds is not None]
    kept = [one for one in published if one.id not in swept]
    assert len(kept) >= min(rules.releases, len(published))
