"""The HTTP API under generated requests, each against its own OpenAPI document: whatever comes, no answer is a 5xx."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from tests.integration.api.http_world import World, shared_ledger
from tests.integration.api.tenant_world import Belongings, furnished

__all__ = ["furnished", "shared_ledger"]

EXAMPLES = int(os.environ.get("EXAMPLES", "3"))
"""Requests for each operation."""


def failures_of(operation: Any, furnished: tuple[World, Belongings], *, mode: str) -> list[str]:
    """Send generated requests to one operation; name the shortest one whose answer the document does not describe."""
    from schemathesis import GenerationMode, checks  # each process of the suite would load it for this file alone
    from schemathesis.specs.openapi import checks as of_document

    held = [checks.not_a_server_error, of_document.status_code_conformance, of_document.content_type_conformance]
    held += [of_document.response_schema_conformance, of_document.response_headers_conformance]
    world, has = furnished
    known: dict[str, list[Any]] = {
        "job_id": [str(job_id) for job_id in has.jobs],
        "gate_id": [str(has.gate)],
        "name": [has.site],
        "tenant": [world.tenant],
        "project": [has.project],
    }

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=GenerationMode(mode)), st.data())
    def send(case: Any, data: st.DataObject) -> None:
        for name in sorted(set(case.path_parameters) & set(known)):
            if data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(known[name]))
        case.call_and_validate(headers=world.headers(), checks=held)

    try:
        send()
    except Unsatisfiable:
        assert mode == "negative"  # nothing that it takes could be wrong
    except (AssertionError, BaseExceptionGroup) as error:
        return [f"{operation.label} ({mode}): {error}"]
    return []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_answer_is_one_that_the_document_describes(furnished: tuple[World, Belongings], mode: str) -> None:
    import schemathesis

    document = schemathesis.openapi.from_asgi("/openapi.json", furnished[0].app)
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) > 25
    failures = [failure for each in operations for failure in failures_of(each, furnished, mode=mode)]
    assert not failures, "\n".join(failures)
