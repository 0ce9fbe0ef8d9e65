from typing import Any

from gateway.providers.prompt_cache import KnownPrefix, PromptCache
from routing.policy.prices import Usage

WRITTEN = Usage(input_tokens=5, cache_write_tokens=1000)
READ = Usage(input_tokens=5, cache_write_tokens=100, cache_read_tokens=1000)


def text(said: str, *, ends_prefix: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": said} | ({"cache_control": {"type": "ephemeral"}} if ends_prefix else {})


def prompt(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "system": [text("rules")], "messages": [{"role": "user", "content": list(parts)}]} | fields


BEGIN = text("begin " * 100, ends_prefix=True)


def after(usage: Usage, fields: dict[str, Any] | None = None) -> PromptCache:
    prompts = PromptCache()
    prompts.note(fields or prompt(BEGIN, text("ask")), usage, context="", sent_at=0.0)
    return prompts


def known(prompts: PromptCache, fields: dict[str, Any], *, context: str = "", now: float = 10.0) -> KnownPrefix:
    return prompts.known(fields, context=context, now=now)


def test_a_prefix_is_known_wherever_its_breakpoints_stand_next() -> None:
    prompts = after(WRITTEN)
    found = known(prompts, prompt(text("begin " * 100), text("go on", ends_prefix=True)))
    assert (found.tokens, found.cached_tokens) == (1000, 1000)
    assert 400 < found.text_bytes < 700


def test_another_beginning_is_not_known() -> None:
    prompts = after(WRITTEN)
    for fields in (
        prompt(text("Begin " * 100, ends_prefix=True)),
        prompt(BEGIN, system=[text("other rules")]),
        prompt(BEGIN, tools=[{"name": "a"}]),
        prompt(BEGIN, model="n"),
        prompt(BEGIN, thinking={"type": "adaptive"}),
        prompt(BEGIN, messages=[{"role": "assistant", "content": [BEGIN]}]),
    ):
        assert known(prompts, fields) == KnownPrefix()
    assert known(prompts, prompt(BEGIN), context="beta") == KnownPrefix()


def test_what_the_provider_may_have_dropped_is_still_counted_but_not_trusted() -> None:
    prompts = after(WRITTEN)
    assert known(prompts, prompt(BEGIN), now=239.0).cached_tokens == 1000
    assert known(prompts, prompt(BEGIN), now=241.0) == known(prompts, prompt(BEGIN))._replace(cached_tokens=0)


def test_a_prefix_is_read_only_within_the_provider_s_reach_of_a_breakpoint() -> None:
    prompts = after(WRITTEN)
    near = [text("begin " * 100), *[text("more")] * 18, text("end", ends_prefix=True)]
    assert known(prompts, prompt(*near)).cached_tokens == 1000
    assert known(prompts, prompt(near[0], *[text("more")] * 3, *near[1:])).cached_tokens == 0
    assert known(prompts, prompt(near[0], text("ask"))).cached_tokens == 0


def test_the_longest_prefix_is_taken() -> None:
    prompts = after(WRITTEN)
    longer = prompt(text("begin " * 100), text("go on", ends_prefix=True))
    prompts.note(longer, READ, context="", sent_at=5.0)
    assert known(prompts, longer).cached_tokens == 1100
    assert known(prompts, longer, now=242.0).cached_tokens == 1100
    assert known(prompts, longer, now=246.0).cached_tokens == 0


def test_a_promise_that_was_broken_once_is_trusted_no_more() -> None:
    prompts = after(WRITTEN)
    other = prompt(text("other", ends_prefix=True))
    prompts.note(other, WRITTEN, context="", sent_at=1.0)
    prompts.note(prompt(BEGIN), Usage(input_tokens=1005), context="", sent_at=2.0)
    assert known(prompts, other) == known(prompts, prompt(BEGIN)) == KnownPrefix()


def test_a_prompt_without_a_breakpoint_or_a_cache_teaches_nothing() -> None:
    assert known(after(Usage(input_tokens=1005)), prompt(BEGIN)) == KnownPrefix()
    assert known(after(WRITTEN, prompt(text("x"))), prompt(text("x"))) == KnownPrefix()
    automatic = prompt(text("x"), cache_control={"type": "ephemeral"})
    assert known(after(WRITTEN, automatic), automatic).cached_tokens == 1000


def test_media_take_no_part_in_the_bytes_that_are_known() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 5000}}
    fields = prompt(image, BEGIN)
    assert known(after(WRITTEN, fields), fields).text_bytes < 700


def test_it_forgets_the_oldest() -> None:
    prompts = PromptCache()
    for number in range(4200):
        prompts.note(prompt(text(str(number), ends_prefix=True)), WRITTEN, context="", sent_at=0.0)
    assert known(prompts, prompt(text("0", ends_prefix=True))) == KnownPrefix()
    assert known(prompts, prompt(text("4199", ends_prefix=True))).tokens == 1000
