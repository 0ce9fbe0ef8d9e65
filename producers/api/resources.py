"""What the HTTP door works with, and who is calling it. Nothing here is global: the application carries it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPAuthorizationCredentials, HTTPBearer

from monitoring.ledger.store import Ledger
from producers.clarify import Clarifier
from producers.dead_letters import DeadLetters
from producers.jobs import PreviewLinks
from producers.keys import Caller, Scope, authenticate, check_shape
from producers.notifications import Notifications
from producers.replays import Replays
from producers.rounds import Asker, Rounds
from producers.sites import Sites
from producers.submit import Environment, Submitter
from routing.accounts import AccountsConfig
from routing.jobs import Door
from routing.policy import Policy
from routing.vocabularies import Vocabularies
from sandbox.den import Den
from sandbox.preview import PreviewSigner


@dataclass(frozen=True)
class Resources:
    """Everything the HTTP door needs; its owner opens and closes it."""

    ledger: Ledger
    submitter: Submitter
    den: Den
    signer: PreviewSigner
    policy: Policy
    pages_url: str
    """How people reach the pages' listener: preview links begin with it."""
    environment: Environment = dict
    """Switches that are read for every decision."""
    vocabularies: Vocabularies | None = None
    """The words that routing looks for; the shipped ones by default."""
    accounts: AccountsConfig = field(default_factory=AccountsConfig)
    """Accounts at forges and trackers, whose webhooks are taken."""
    known_keys: tuple[str, ...] = ()
    """Secrets of this installation that no site may hold."""
    poll_seconds: float = 0.25
    """How often an open event stream looks for news."""

    def caller(self, key: str, scope: Scope) -> Caller:
        """Return who shows a key, if it allows this.

        Raises:
            AuthenticationError: the caller's fault.
        """
        with self.ledger.look() as connection:
            caller = authenticate(connection, key)
        caller.require(scope)
        return caller

    @property
    def sites(self) -> Sites:
        """The use cases around sites."""
        return Sites(self.ledger, self.den, self.policy, known_keys=self.known_keys)

    @property
    def clarifier(self) -> Clarifier:
        """Takes replies to open questions."""
        return Clarifier(self.ledger, self.policy, environment=self.environment, vocabularies=self.vocabularies)

    @property
    def rounds(self) -> Rounds:
        """Lets jobs go on from others."""
        return Rounds(self.ledger, self.policy, environment=self.environment, vocabularies=self.vocabularies)

    @property
    def replays(self) -> Replays:
        """Does jobs' requests once more."""
        return Replays(self.ledger, self.policy, environment=self.environment, vocabularies=self.vocabularies)

    @property
    def dead_letters(self) -> DeadLetters:
        """What ended as nobody wanted."""
        return DeadLetters(self.ledger, self.replays)

    @property
    def notifications(self) -> Notifications:
        """What owners are told of their jobs' ends."""
        return Notifications(self.ledger)

    @property
    def links(self) -> PreviewLinks:
        """Makes preview links."""
        return PreviewLinks(self.signer, self.pages_url)


def resources_of(request: Request) -> Resources:
    """Return the resources of the application that serves this request."""
    resources = request.app.state.resources
    assert isinstance(resources, Resources)
    return resources


async def _resources_here(request: Request) -> Resources:
    return resources_of(request)  # a function that is not async would be given a thread of its own


ResourcesDep = Annotated[Resources, Depends(_resources_here)]

_BEARER = HTTPBearer(auto_error=False, description="`Authorization: Bearer pmk_...`")
_HEADER = APIKeyHeader(name="X-API-Key", auto_error=False, description="`X-API-Key: pmk_...`")


def key_for(scope: Scope) -> Callable[..., Awaitable[str]]:
    """Return a dependency that gives the key that a request shows: `Resources.caller` says whose it is.

    Who shows nothing like a key is refused here, before a body is read.
    """

    async def key_of(
        bearer: HTTPAuthorizationCredentials | None = Security(_BEARER, scopes=[scope.value]),
        api_key: str | None = Security(_HEADER, scopes=[scope.value]),
    ) -> str:
        return check_shape(bearer.credentials if bearer is not None else api_key or "")

    return key_of


def require(scope: Scope) -> Callable[..., Caller]:
    """Return a dependency that lets only keys with this scope through. The tenant comes from the key alone."""

    def caller_of(resources: ResourcesDep, key: str = Depends(key_for(scope))) -> Caller:
        return resources.caller(key, scope)

    return caller_of


def asker_of(caller: Caller) -> Asker:
    """Return who asks for a job that goes on from another one."""
    return Asker(tenant=caller.tenant, door=Door.HTTP, actor=caller.actor)


Reader = Annotated[Caller, Depends(require(Scope.READ))]
SubmitCaller = Annotated[Caller, Depends(require(Scope.SUBMIT))]
SubmitKey = Annotated[str, Depends(key_for(Scope.SUBMIT))]
"""For what is asked so often that the thread which a dependency takes for itself would show."""
Approver = Annotated[Caller, Depends(require(Scope.APPROVE))]
Admin = Annotated[Caller, Depends(require(Scope.ADMIN))]
