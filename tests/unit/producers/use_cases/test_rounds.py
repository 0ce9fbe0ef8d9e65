from types import SimpleNamespace
from typing import cast

from ledger.tables import Job
from producers.use_cases.rounds import _result_of_revision


def test_a_revision_knows_what_its_owner_was_asked_with_the_preview() -> None:
    """A question that stands in the preview's report is answered by the next round (issue 20)."""
    job = SimpleNamespace(
        prompt="Add the course", state="awaiting_approval", release_id="r", result={"open_question": "Who teaches it?"}
    )
    begun = _result_of_revision(cast(Job, job), [cast(Job, job)])["begun"]
    assert begun == {"earlier": ["Add the course"], "asked": "Who teaches it?"}
