"""Sign people in by OpenID Connect: the authorization code flow with PKCE, state and nonce, verified by Authlib.

Authlib is imported at the first use: an installation without an identity provider does not need it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from producers.config import OidcConfig
from producers.errors import SignInRefusedError
from producers.use_cases.people import Grant, Identity, choose_grant, parse_grant

if TYPE_CHECKING:
    from authlib.integrations.requests_client import OAuth2Session

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures of an ID token that are accepted: by a key of the provider's, never `none` or a shared secret."""
_SECONDS = 5.0
_FRESH_SECONDS = 600.0
_LEEWAY_SECONDS = 30
_LONGEST_CODE, _LONGEST_SUBJECT = 4_096, 255


class Ticket(NamedTuple):
    """What a browser keeps between leaving for the provider and coming back."""

    state: str
    nonce: str
    verifier: str


class _Provider(NamedTuple):
    """The provider's document and keys."""

    facts: Mapping[str, Any]
    keys: Mapping[str, Any]
    read_at: float
    """In monotonic seconds."""


@dataclass(frozen=True)
class Proven:
    """A person whose sign-in is proven, and what they may do."""

    identity: Identity
    grant: Grant


class OidcProvider:
    """The identity provider of an installation."""

    def __init__(self, config: OidcConfig, *, redirect_uri: str) -> None:
        """Create it.

        Raises:
            ValueError: the operator's fault: a grant is none.
        """
        self._config = config
        self._redirect_uri = redirect_uri
        self._grants = {value: parse_grant(text) for value, text in config.grants.items()}
        self._lock = threading.Lock()
        self._known: _Provider | None = None

    def begin(self) -> tuple[str, Ticket]:
        """Return where a browser goes to sign in, and what it keeps meanwhile.

        Raises:
            SignInRefusedError: the provider cannot be reached, or is not the one that is configured.
        """
        ticket = Ticket(secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48))
        with self._session() as session:
            url, _ = session.create_authorization_url(
                self._provider(session).facts["authorization_endpoint"],
                state=ticket.state,
                nonce=ticket.nonce,
                code_verifier=ticket.verifier,
            )
        return str(url), ticket

    def finish(self, ticket: Ticket, answer: Mapping[str, str]) -> Proven:
        """Return who has signed in.

        Raises:
            SignInRefusedError: the answer proves nothing, or they may not enter.
        """
        if not compare_digest(answer.get("state", "").encode(), ticket.state.encode()):
            raise SignInRefusedError("this sign-in was begun elsewhere or long ago; begin again")
        if answer.get("iss", self._config.issuer) != self._config.issuer:
            raise SignInRefusedError("another identity provider has answered")
        if "error" in answer or not 0 < len(answer.get("code", "")) <= _LONGEST_CODE:
            raise SignInRefusedError("the identity provider did not sign you in")
        claims = self._claims_of(ticket, answer["code"])
        identity = self._identity_of(claims)
        return Proven(identity, choose_grant(identity.groups, self._grants))

    def _claims_of(self, ticket: Ticket, code: str) -> Mapping[str, Any]:
        from authlib.common.errors import AuthlibBaseError
        from requests import RequestException

        with self._session() as session:
            provider = self._provider(session)
            try:
                token = session.fetch_token(
                    provider.facts["token_endpoint"], code=code, code_verifier=ticket.verifier, timeout=_SECONDS
                )
            except (AuthlibBaseError, RequestException, ValueError):
                raise SignInRefusedError("the identity provider did not confirm the sign-in") from None
            return self._verify(session, str(token.get("id_token", "")), nonce=ticket.nonce)

    def _verify(self, session: OAuth2Session, id_token: str, *, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token that this provider made for us, for this sign-in, just now."""
        from authlib.common.errors import AuthlibBaseError
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        config = self._config
        wanted = {
            "iss": {"essential": True, "value": config.issuer},
            "aud": {"essential": True, "value": config.client_id},
        }
        for is_fresh in (False, True):  # the provider may have changed its keys since they were read
            provider = self._provider(session, is_fresh=is_fresh)
            try:
                token = jwt.decode(id_token, KeySet.import_key_set(dict(provider.keys)), algorithms=list(ALGORITHMS))  # type: ignore[arg-type]
                claims = CodeIDToken(
                    token.claims, token.header, wanted, {"client_id": config.client_id, "nonce": nonce}
                )
                claims.validate(leeway=_LEEWAY_SECONDS)
            except (AuthlibBaseError, JoseError, ValueError, TypeError, KeyError):
                continue
            return dict(token.claims)
        raise SignInRefusedError("the identity provider's answer does not prove who you are")

    def _identity_of(self, claims: Mapping[str, Any]) -> Identity:
        found = claims.get(self._config.groups_claim, [])
        groups = [found] if isinstance(found, str) else found if isinstance(found, list) else []
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT or "\x00" in subject:
            raise SignInRefusedError("the identity provider's answer does not prove who you are")
        names = (claims.get(name) for name in ("preferred_username", "email", "name"))
        name = next((name for name in names if isinstance(name, str) and name), subject)
        return Identity(
            self._config.issuer, subject, name[:200], tuple(each for each in groups if isinstance(each, str))
        )

    def _session(self) -> OAuth2Session:
        from authlib.integrations.requests_client import OAuth2Session

        session = OAuth2Session(
            self._config.client_id,
            self._config.client_secret.get_secret_value() or None,
            scope=" ".join(self._config.scopes),
            redirect_uri=self._redirect_uri,
            code_challenge_method="S256",
        )
        session.trust_env = False
        session.max_redirects = 0
        return session

    def _provider(self, session: OAuth2Session, *, is_fresh: bool = False) -> _Provider:
        """Return the provider's document and keys, read at most ten minutes ago; read anew with `is_fresh`."""
        with self._lock:
            known = self._known
        if known is not None and not is_fresh and time.monotonic() - known.read_at < _FRESH_SECONDS:
            return known
        issuer = self._config.issuer
        facts = self._read(session, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if facts.get("issuer") != issuer:
            raise SignInRefusedError("the identity provider is not the one that is configured")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if urlsplit(str(facts.get(name))).scheme not in ("https", urlsplit(issuer).scheme):
                raise SignInRefusedError("the identity provider is not the one that is configured")
        read = _Provider(facts, self._read(session, facts["jwks_uri"]), time.monotonic())
        with self._lock:
            self._known = read
        return read

    @staticmethod
    def _read(session: OAuth2Session, url: str) -> dict[str, Any]:
        from requests import RequestException

        try:
            answer = session.request("GET", url, withhold_token=True, timeout=_SECONDS, allow_redirects=False)
            answer.raise_for_status()
            found = answer.json()
        except (RequestException, ValueError):
            raise SignInRefusedError("the identity provider cannot be reached; try again") from None
        if not isinstance(found, dict):
            raise SignInRefusedError("the identity provider is not the one that is configured")
        return found
