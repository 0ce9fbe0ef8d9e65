"""A judging model, asked through the provider's own dialect."""

from collections.abc import Iterator

import pytest

from gateway.fake_provider.config import FakeProviderConfig
from gateway.fake_provider.server import running_fake_provider
from producers.evaluation.judge import Judge, Judgement
from producers.local.embedded import Account
from routing.policy.platform import platform_policy
from tests.provider_dialects import BEARER, dialects

HAIKU = "claude-haiku-4-5-20251001"
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c6360606000000004000127340a"
    "aa0000000049454e44ae426082"
)
SCENARIO = """
rules:
  - name: judged
    when: {tools: [judge], prompt: 'Raise the price'}
    say: [{tool: judge, input: {done: 9, words: 8, looks: 6, why: The price is bold.}}]
  - name: lost
    when: {tools: [judge]}
    say: [{tool: judge, input: {done: 11}}]
"""


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Account]]:
    (scenario := tmp_path_factory.mktemp("judge") / "rules.yaml").write_text(SCENARIO)
    config = FakeProviderConfig(speed="max", scenarios=(scenario,))
    with running_fake_provider(config) as upstream, dialects(upstream.url) as server:
        yield {
            "anthropic": Account("own", {"BASE_URL": upstream.url, "API_KEY": "none"}),
            "openai": Account("own", {"API": "openai", "BASE_URL": f"{server.url}/openai/v1", "API_KEY": BEARER}),
            "away": Account("own", {"BASE_URL": "http://127.0.0.1:9", "API_KEY": "none"}),
        }


@pytest.mark.parametrize("api", ["anthropic", "openai"])
def test_a_result_is_scored_and_the_call_has_its_price(accounts: dict[str, Account], api: str) -> None:
    judge = Judge(accounts[api], HAIKU, platform_policy().prices)
    before, after = {"index.html": b"<p>Rye 5</p>"}, {"index.html": b"<p>Rye 6</p>"}
    judgement, cost = judge.judge("Raise the price", before, after, said="Done.", pictures=[PIXEL])
    assert judgement == Judgement(done=9, words=8, looks=6, why="The price is bold.")
    assert judgement.lowest == 6
    assert 0 < cost < 10_000_000


def test_a_judge_that_is_away_or_scores_otherwise_says_nothing(accounts: dict[str, Account]) -> None:
    prices = platform_policy().prices
    files = {"index.html": b"<p>Rye 5</p>"}
    assert Judge(accounts["away"], HAIKU, prices).judge("x", files, files, said="", pictures=[]) == (None, 0)
    judgement, cost = Judge(accounts["anthropic"], HAIKU, prices).judge("x", files, files, said="", pictures=[])
    assert (judgement, cost > 0) == (None, True)
