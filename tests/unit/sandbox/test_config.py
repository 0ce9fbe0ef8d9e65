"""Settings of boxes that only make sense together."""

import pytest
from pydantic import ValidationError

from sandbox.box_spec import Target
from sandbox.config import BoxConfig
from sandbox.pool import build_spec


@pytest.mark.parametrize(
    "fields",
    [
        {"subnets": "8.8.8.0/24"},
        {"subnets": "10.0.0.0/28"},
        {"install": "A B"},
        {"install": ""},
        {"engine": "docker.sock"},
        {"gateway_host": "evil.example"},
        {"warm": -1},
        {"base_image": "-x"},
        {"nope": 1},
    ],
)
def test_a_setting_of_boxes_that_means_harm_or_nothing_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        BoxConfig(**fields)  # type: ignore[arg-type]


def test_a_network_of_the_operator_s_needs_the_gateway_s_address_on_it() -> None:
    with pytest.raises(ValidationError, match="gateway_host: required with network"):
        BoxConfig(network="pointsman-egress")
    assert BoxConfig(network="pointsman-egress", gateway_host="10.0.0.2").network == "pointsman-egress"


class ImageIsThere:
    def image_id(self, reference: str) -> str:
        return f"sha256:{reference}"


def test_the_mirror_is_beside_the_gateway_unless_it_has_an_address_of_its_own() -> None:
    here = BoxConfig(gateway_host="10.0.0.2", mirror_port=8091)
    own = here.model_copy(update={"mirror_host": "10.0.0.3"})
    engine = ImageIsThere()
    assert build_spec(here, engine).mirror == Target("10.0.0.2", 8091)  # type: ignore[arg-type]
    assert build_spec(own, engine).mirror == Target("10.0.0.3", 8091)  # type: ignore[arg-type]
