"""What of a compose file enters a snapshot: no secret and no variable's value, and what is left is the same YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.onhost.collect.composefile import without_secrets
from nearsocket.onhost.collect.redact import REDACTED

WHOLE = """# CANARY in a comment
x-env: &env
  HF_TOKEN: |
    CANARY
    CANARY: more
  MODE: fast
services:
  glm:
    image: lmsysorg/sglang:v0.5.23 # CANARY behind
    environment:
      <<: *env
      NAME: CANARY
      "FOLDED": >
        CANARY
        more: CANARY
    labels: {a: CANARY,
       b: CANARY}
    command: ["python3", "-m", "sglang.launch_server", "--api-key", "CANARY", "--tp", "2"]
    restart: unless-stopped
    depends_on: [db]
  vllm:
    image: "registry.example:5000/vllm:1"
    command:
    - --model
    - /m
    - --api-key
    - CANARY
    - "CANARY2"
    - --port
    - "80"
    environment:
    - ONE=CANARY
    - "TWO=CANARY with blanks"
    deploy:
      resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}
  folded:
    command: >
      vllm serve m --api-key
      CANARY
      --port 9
  plain:
    command: vllm serve m --api-key CANARY --port 9
    build: {context: ., args: {TOKEN: CANARY}}
  proxy:
    command: [client, "https://user:CANARY@proxy.example/", "--password=CANARY", --token=CANARY]
    secrets: [tok]
secrets:
  tok:
    environment: CANARY
"""


def test_no_secret_and_no_value_of_a_variable_is_left() -> None:
    assert "CANARY" not in without_secrets(WHOLE)


def test_what_import_reads_is_left_as_it_was() -> None:
    before, after = yaml.safe_load(WHOLE)["services"], yaml.safe_load(without_secrets(WHOLE))["services"]
    assert {name: told.get("image") for name, told in before.items()} == {name: told.get("image") for name, told in after.items()}
    assert after["glm"]["command"] == ["python3", "-m", "sglang.launch_server", "--api-key", REDACTED, "--tp", "2"]
    assert after["vllm"]["command"] == ["--model", "/m", "--api-key", REDACTED, REDACTED, "--port", "80"]
    assert (after["glm"]["restart"], after["glm"]["depends_on"]) == ("unless-stopped", ["db"])
    assert after["vllm"]["deploy"] == before["vllm"]["deploy"]
    assert set(after["glm"]["environment"]) >= {"NAME", "FOLDED", "MODE"}
    assert after["vllm"]["environment"] == ["ONE", "TWO"]


_NAMES = st.sampled_from(["ONE", "API_KEY", "HF_TOKEN", "http_proxy"])


@given(
    st.dictionaries(_NAMES, st.sampled_from(["CANARY", "CANARY: x", "a\nCANARY\n", "'CANARY", "- CANARY"]), min_size=1),
    st.booleans(),
)
def test_a_value_that_yaml_itself_wrote_is_never_left(environment: dict[str, str], flow: bool) -> None:
    service: dict[str, Any] = {"image": "sglang", "environment": environment, "command": ["--api-key", "CANARY"]}
    text = yaml.safe_dump({"services": {"a": service}}, default_flow_style=None if flow else False)
    assert "CANARY" not in without_secrets(text)


@given(st.text(alphabet=" -:{}[]#'\"|>&*\nabk=", max_size=200))
def test_any_text_comes_to_an_end(text: str) -> None:
    without_secrets(text)


@pytest.mark.parametrize("text", ["", "\n", "services:", "- a", "\tx"])
def test_odd_texts_are_no_fault(text: str) -> None:
    assert without_secrets(text).endswith("\n")
