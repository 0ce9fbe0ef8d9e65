import hashlib
from dataclasses import dataclass

import pytest
from itsdangerous import URLSafeTimedSerializer

from sites.errors import PreviewRefusedError
from sites.preview import PreviewClaim, PreviewSigner, live_headers, preview_headers, with_probe

REVIEWER = ("reviewer",)
OLD, NEW, OTHER = "old-key-" * 4, "new-key-" * 4, "other-key" * 4


@dataclass
class Clock:
    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def signed(signer: PreviewSigner, *, site: str = "bakery", release_id: str = "r1", audience: str = "reviewer") -> str:
    return signer.sign(site=site, release_id=release_id, audience=audience)


@pytest.mark.req("H-082")
@pytest.mark.threat("H1")
def test_a_token_names_the_site_release_audience_and_generation_it_was_made_for() -> None:
    signer = PreviewSigner([NEW])
    token = signer.sign(site="bakery", release_id="r1", audience="reviewer", generation=7)
    claim = signer.verify(token, max_age_seconds=60, audiences=REVIEWER)
    assert claim == PreviewClaim("bakery", "r1", "reviewer", 7)


@pytest.mark.req("H-082")
@pytest.mark.threat("H1")
def test_a_change_of_any_character_is_refused_as_tampered() -> None:
    signer = PreviewSigner([NEW])
    token = signed(signer)
    # The last character of an unpadded base64 text holds bits that decode to nothing; it is left out.
    for index in range(len(token) - 1):
        changed = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
        with pytest.raises(PreviewRefusedError) as caught:
            signer.verify(changed, max_age_seconds=60, audiences=REVIEWER)
        assert caught.value.reason == "tampered"


@pytest.mark.threat("H1")
@pytest.mark.parametrize(
    "token", ["", ".", "a.b.c", "\0", "é", "x" * 10_000_000], ids=["empty", "dot", "words", "nul", "unicode", "huge"]
)
def test_what_is_no_token_is_refused_as_tampered(token: str) -> None:
    with pytest.raises(PreviewRefusedError) as caught:
        PreviewSigner([NEW]).verify(token, max_age_seconds=60, audiences=REVIEWER)
    assert caught.value.reason == "tampered"


@pytest.mark.req("H-082")
@pytest.mark.threat("H1")
def test_a_token_expires_after_exactly_its_time() -> None:
    clock = Clock()
    signer = PreviewSigner([NEW], clock=clock)
    token = signed(signer)
    clock.now += 60
    assert signer.verify(token, max_age_seconds=60, audiences=REVIEWER)
    clock.now += 1
    with pytest.raises(PreviewRefusedError) as caught:
        signer.verify(token, max_age_seconds=60, audiences=REVIEWER)
    assert caught.value.reason == "expired"


@pytest.mark.threat("H1")
@pytest.mark.parametrize(("signing", "replaced"), [([OLD], NEW), ([NEW, OLD], OLD)])
def test_the_first_key_signs_and_a_replaced_one_is_accepted_until_it_is_taken_away(
    signing: list[str], replaced: str
) -> None:
    token = signed(PreviewSigner(signing))
    assert PreviewSigner([replaced, signing[0]]).verify(token, max_age_seconds=60, audiences=REVIEWER)
    with pytest.raises(PreviewRefusedError):
        PreviewSigner([replaced]).verify(token, max_age_seconds=60, audiences=REVIEWER)


@pytest.mark.threat("H1")
def test_a_token_of_another_installation_or_audience_is_refused() -> None:
    with pytest.raises(PreviewRefusedError):
        PreviewSigner([NEW]).verify(signed(PreviewSigner([OTHER])), max_age_seconds=60, audiences=REVIEWER)
    signer = PreviewSigner([NEW])
    with pytest.raises(PreviewRefusedError):
        signer.verify(signed(signer, audience="owner"), max_age_seconds=60, audiences=REVIEWER)


@pytest.mark.threat("H1")
def test_what_the_same_key_signed_for_another_purpose_opens_nothing() -> None:
    claim = ["bakery", "r1", "reviewer", 0]
    options = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    for salt, opens in (("pointsman.preview.v1", True), ("pointsman.session.v1", False)):
        token = str(URLSafeTimedSerializer([NEW], salt=salt, signer_kwargs=options).dumps(claim))
        if opens:
            assert PreviewSigner([NEW]).verify(token, max_age_seconds=60, audiences=REVIEWER).site == "bakery"
        else:
            with pytest.raises(PreviewRefusedError):
                PreviewSigner([NEW]).verify(token, max_age_seconds=60, audiences=REVIEWER)


@pytest.mark.parametrize(
    "claim",
    [["bakery", "r1", "reviewer"], ["bakery", "r1", "reviewer", True], ["bakery", "r1", 7, 0], {"site": "x"}, 7],
)
def test_a_signed_claim_of_another_shape_is_refused(claim: object) -> None:
    options = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
    serializer = URLSafeTimedSerializer([NEW], salt="pointsman.preview.v1", signer_kwargs=options)
    with pytest.raises(PreviewRefusedError):
        PreviewSigner([NEW]).verify(str(serializer.dumps(claim)), max_age_seconds=60, audiences=REVIEWER)


@pytest.mark.parametrize("keys", [[], ["short"], [NEW, "short"]])
def test_weak_keys_are_refused_at_the_start(keys: list[str]) -> None:
    with pytest.raises(ValueError, match="at least 32 characters"):
        PreviewSigner(keys)


@pytest.mark.threat("H1", "H2", "G11")
def test_a_preview_is_never_stored_indexed_framed_sniffed_or_named_to_others() -> None:
    headers = preview_headers("default-src 'none'; frame-ancestors 'none'")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; frame-ancestors 'none'; sandbox ")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Robots-Tag"].startswith("noindex")
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.threat("H2")
@pytest.mark.parametrize("headers", [live_headers("default-src 'none'"), preview_headers("default-src 'none'")])
def test_no_page_shares_its_origin_with_another(headers: dict[str, str]) -> None:
    sandbox = headers["Content-Security-Policy"].split("; ")[-1].split()
    assert sandbox[0] == "sandbox"
    assert not {"allow-same-origin", "allow-top-navigation"} & set(sandbox)
    assert "Cross-Origin-Opener-Policy" not in headers, "HTML makes a sandboxed page that has one a network error"


def test_a_live_page_may_be_found_and_stored() -> None:
    headers = live_headers("default-src 'none'")
    assert "X-Robots-Tag" not in headers
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    ("front", "rest"),
    [
        (b"<!DOCTYPE html>", b"<title>a</title><p>A page needs no head tag"),
        (b"\xef\xbb\xbf\n<!-- by hand --><!doctype html>", b"<html lang=en><head><title>a</title>"),
        (b"<!doctype html>", b"<!-- <head> --><script>'<head>'</script>"),
        (b"", b"<p>none"),
        (b"", b"<!--><script>'--><!doctype html>'</script>"),
        (b"\xef\xbb\xbf", b"<html>"),
    ],
)
def test_the_probe_stands_first_and_behind_the_doctype_so_that_a_frame_is_laid_out_as_the_live_page(
    front: bytes, rest: bytes
) -> None:
    probed = with_probe(front + rest)
    assert probed.startswith(front + b"<script>")
    assert probed.endswith(b"</script>" + rest)
