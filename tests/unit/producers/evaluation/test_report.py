"""What a run of cases tells beside the one before it."""

from producers.evaluation.report import page_of, summarise
from producers.evaluation.run import CaseResult, StepResult


def test_a_case_that_did_not_run_came_out_neither_right_nor_wrong() -> None:
    def summary(**findings: str) -> dict[str, object]:
        results = [
            CaseResult(id=name, kind="edit", lang="en", steps=(StepResult(findings=tuple(filter(None, [finding]))),))
            for name, finding in findings.items()
        ]
        return summarise(results, settings={})

    before = summary(mended="poor", broken="", elsewhere="poor")
    page = page_of([], [], summary(mended="", broken="poor"), before)
    assert "; newly wrong: broken; right again: mended" in page
    assert "elsewhere" not in page
