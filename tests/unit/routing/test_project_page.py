"""The example of a project's file in the documentation is one that is taken."""

import re
from pathlib import Path

from routing.policy.platform import platform_policy
from routing.policy.project import for_project, read_project

PAGE = (Path(__file__).parents[3] / "docs" / "project.md").read_text()


def test_the_example_is_taken_and_has_every_part() -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    policy = platform_policy()
    config = read_project(example[1], source="docs/project.md", policy=policy)
    assert config.model_fields_set == set(type(config).model_fields)
    lowered = for_project(policy, config)
    assert lowered.budgets.run_usd == 10
    assert len(lowered.runs.rules.gates) == len(policy.runs.rules.gates) + 1


def test_every_choice_of_the_stack_is_named() -> None:
    for choices in platform_policy().runs.stack.values():
        assert all(re.search(rf"\b{choice}\b", PAGE) for choice in choices)
