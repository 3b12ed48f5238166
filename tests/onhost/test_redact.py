from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsocket.onhost.collect import redact

CANARY = "c4n4ry-Value.9"


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", CANARY],
        [f"--api-key={CANARY}"],
        ["--hf-token", CANARY],
        ["--hf_token", f"-{CANARY}"],
        [f"--apiKey={CANARY}"],
        ["-e", f"HF_TOKEN={CANARY}"],
        [f"-eHF_TOKEN={CANARY}"],
        [f"--env=API_KEY={CANARY} with space"],
        ["--env", f"DB_PASSWORD={CANARY},{CANARY};{CANARY}"],
        [f"https://user:{CANARY}@host/path"],
        [f"https://{CANARY}@host/path"],
        [f"https://user:a/b{CANARY}@host/path"],
        ["--header", f"Authorization: Bearer {CANARY}"],
        [f"curl -H 'Authorization: Basic {CANARY}' x"],
        [f"exec vllm serve --api-key {CANARY} --port 1"],
        [f'exec vllm serve --api-key="{CANARY} {CANARY}" --port 1'],
        [f"API_KEY='{CANARY} x {CANARY}' vllm serve"],
        [f'{{"api_key": "{CANARY} {CANARY}", "port": 1}}'],
        [f'{{\\"apiKey\\": \\"{CANARY}\\"}}'],
        [f"password: {CANARY}"],
        [f"MY_SECRET = {CANARY}"],
        ["--ssl-keyfile-password", CANARY],
        ["--credentials", CANARY],
        [f"AWS_SECRET_ACCESS_KEY={CANARY}"],
        [f"x;TOKEN={CANARY}"],
        ["hf_abcdefghijklmnopqrstuv" + CANARY.replace("-", "").replace(".", "")],
        [f"--auth {CANARY}"],
        [f'KEY="{CANARY} unclosed {CANARY}'],
        [f"https://host/?api_key={CANARY}&x=1"],
        ["--api-key", CANARY, CANARY, f"x{CANARY}", "--port", "1"],
        ["vllm", "serve", "--api-key", "x", CANARY],
        ["curl", "-u", f"bob:{CANARY}", "http://h/"],
        ["curl", f"-ubob:{CANARY}"],
        ["curl", "--proxy-user", f"bob:{CANARY}"],
        ["curl", f"--user=bob:{CANARY}"],
        ["mysql", "-h", "db", f"-p{CANARY}"],
        ["sshpass", "-p", CANARY, "ssh", "h"],
        ["/usr/bin/redis-cli", "-h", "h", "-a", CANARY],
        [f"SGLANG_FOO=user:{CANARY}@h"],
        [f"user:{CANARY}@[::1]:80"],
        ["--header", f"Authorization: ApiKey {CANARY}"],
        [f"-HProxy-Authorization: Negotiate {CANARY}"],
        ["-H", "Authorization:", "ApiKey", CANARY],
        ["x", "Bearer", CANARY],
        [f"Cookie: a=b; session={CANARY}"],
        ["Cookie:", "a=b;", f"session={CANARY}"],
        [f"curl -b 'a=b; session={CANARY}' http://h"],
        [f"curl -H 'X-Auth: {CANARY}' -H \"Set-Cookie: a; b={CANARY}\" x"],
        [f'{{"secret": {{"v": "{CANARY}"}}, "port": 1}}'],
        [f'{{\\"secret\\": {{\\"v\\": \\"}}{CANARY}\\"}}}}'],
        [f'{{"api_keys": ["K1", "]{CANARY}"]}}'],
        [f'--tokens={{"a": ["{CANARY}'],
        [f"https://h/?sig={CANARY}&x=1"],
        [f"{'a' * 100}_api_key={CANARY}"],
        [f"2fa_token={CANARY}"],
    ],
)
def test_no_secret_is_left_of_a_command(words: list[str]) -> None:
    result = redact.argv(words)
    assert CANARY not in "\0".join(result) and CANARY.replace("-", "").replace(".", "") not in "\0".join(result)
    assert redact.REDACTED in "\0".join(result)
    assert CANARY not in redact.text(" ".join(words).replace(" with space", ""))


@pytest.mark.parametrize(
    "words",
    [
        ["python3", "-m", "sglang.launch_server", "--model-path", "/models/x", "--tp", "2", "--port", "30000"],
        ["--max-total-tokens", "4096", "--chunked-prefill-size", "8192"],
        ["--max-total-tokens=4096"],
        ["--tokenizer-path", "/models/x", "--skip-tokenizer-init"],
        ["--tokenizer=/models/x", "NCCL_DEBUG=INFO"],
        ["sglang::scheduler_TP0"],
        ["docker", "run", "-u", "1000:1000", "-p8000:8000/tcp", "-p", "127.0.0.1:80:80", "-p8000", "x"],
        ["vllm/vllm-openai:v0.9@sha256:0123"],
        ["--max-total-tokens", "4096", "model"],
        ["numactl", "--cpunodebind=0", "--membind=0", "vllm", "serve", "a:b"],
        [],
        [""],
    ],
)
def test_what_is_no_secret_stays(words: list[str]) -> None:
    assert redact.argv(words) == words


@pytest.mark.parametrize(
    "word", ["hf_ABCDEFGHIJKLMNOPQRSTUV", "sk-ABCDEFGHIJKLMNOPQRST", "AKIAABCDEFGHIJKLMNOP", "eyJhbGciOiJI.eyJzdWIiOiIx.abc"]
)
def test_a_well_known_shape_goes_wherever_it_stands(word: str) -> None:
    assert redact.argv(["vllm", "serve", word]) == ["vllm", "serve", "<redacted>"]
    assert redact.text(f"vllm serve {word}") == "vllm serve <redacted>"


def test_what_stands_around_a_nested_value_or_a_header_stays() -> None:
    assert redact.text('{"secret": {"v": "x"}, "port": 1}') == '{"secret": <redacted>, "port": 1}'
    assert redact.text("curl -H 'Cookie: a=b; c=d' http://h/") == "curl -H 'Cookie: <redacted>' http://h/"
    assert redact.argv(["curl", "-b", "a=b; c=d", "x"]) == ["curl", "-b", "<redacted>", "x"]
    assert redact.argv(["mysql", "-p123456", "db"]) == ["mysql", "-p<redacted>", "db"]
    assert redact.argv(["vllm", "-H", "Authorization:", "ApiKey", "x", "--port", "1"])[2:] == [
        "Authorization:",
        "<redacted>",
        "<redacted>",
        "--port",
        "1",
    ]
    assert redact.text("module.sig_enforce=1 quiet") == "module.sig_enforce=1 quiet"


def test_only_the_values_of_a_secret_option_go() -> None:
    words = ["vllm", "serve", "m", "--api-key", "K1", "K2", "--port", "1", "-x", "y"]
    assert redact.argv(words) == ["vllm", "serve", "m", "--api-key", "<redacted>", "<redacted>", "--port", "1", "-x", "y"]
    unit = "{ argv[]=/usr/bin/vllm serve --api-key K1 K2 K3 --port 1 ; argv[]=a --api-key K4 K5 ; ignore_errors=no }"
    assert redact.text(unit) == (
        "{ argv[]=/usr/bin/vllm serve --api-key <redacted> <redacted> --port 1 ; argv[]=a --api-key <redacted> <redacted> ;"
        " ignore_errors=no }"
    )
    assert redact.environ({"SGLANG_FOO": "user:pw@h"}) == {"SGLANG_FOO": "<redacted>@h"}


def test_white_space_in_a_word_s_secret_does_not_save_it() -> None:
    assert redact.argv(["-e", f"DB_PASSWORD={CANARY} {CANARY}"]) == ["-e", "DB_PASSWORD=<redacted>"]


def test_a_secret_option_without_a_value_leaves_the_next_option_alone() -> None:
    assert redact.argv(["--auth", "--port", "1"]) == ["--auth", "--port", "1"]


def test_text_of_the_kernel_stays_but_for_secrets() -> None:
    line = "BOOT_IMAGE=/vmlinuz-6.1.0 root=UUID=1-2 ro quiet numa_balancing=disable rd.luks.key=canary iommu=pt"
    assert redact.text(line) == line.replace("canary", "<redacted>")


def test_a_unit_s_command_keeps_what_stands_behind_a_secret() -> None:
    text = "{ path=/usr/bin/docker ; argv[]=/usr/bin/docker run -e API_KEY=canary --gpus all image ; ignore_errors=no }"
    assert redact.text(text) == text.replace("canary", "<redacted>")


def test_mountinfo_and_nccl_lines_stay() -> None:
    for line in (
        "31 25 0:56 / /dev/shm rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=65536k,mpol=bind:0",
        "gpu1:100:200 [0] NCCL INFO NCCL_CUMEM_ENABLE set by environment to 1.",
        "gpu1:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct",
        "gpu1:1:2 [0] NCCL INFO ncclTopoGetCpuAffinity: Affinity for GPU 0 is 0-11. (GPU affinity = 0-11 ; CPU affinity = 0-47).",
    ):
        assert redact.text(line) == line


def test_a_cifs_password_in_a_mount_goes() -> None:
    assert "canary" not in redact.text("1 2 0:5 / /mnt rw - cifs //h/s rw,username=x,password=canary,uid=0")


def test_the_environment_is_cut_to_allowed_names() -> None:
    pairs = {
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "eth0",
        "HF_TOKEN": "canary",
        "VLLM_API_KEY": "canary",
        "PATH": "/bin",
        "LD_PRELOAD": "/x.so",
        "SGLANG_ARGS": "--api-key canary --tp 2",
    }
    assert redact.environ(pairs) == {
        "LD_PRELOAD": "/x.so",
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_IFNAME": "eth0",
        "SGLANG_ARGS": "--api-key <redacted> --tp 2",
    }
    assert redact.environ_words(["NCCL_A=b=c", "bad", "TOKEN=x"]) == {"NCCL_A": "b=c"}


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "a=", "a-", "://", "a://b:", "key=", '"', "\\", "--a ", "key: '", "a.b@", "a:b", "-pa ", "-u a", "sshpass "),
        *("--key a ", "a.", "token", "eyJ-", "key={", '{"key":', "[", "cookie:", "'cookie:", "-x-cookie:", 'key:["', "-a."),
        *("curl -b ", "A-"),
    ],
)
def test_no_text_makes_redaction_slow(piece: str) -> None:
    words = [piece * (131072 // len(piece))]
    began = time.process_time()
    redact.argv(words)
    assert time.process_time() - began < 1.5


def test_a_key_block_goes_whole() -> None:
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIcanary\n-----END RSA PRIVATE KEY-----"
    assert redact.text(f"a {block} b") == "a <redacted> b"


@given(
    st.sampled_from(["API_KEY", "hf-token", "db_password", "myApiKey", "SECRET"]),
    st.sampled_from(["=", ": ", " = ", ":"]),
    st.text(st.characters(codec="ascii", exclude_categories=("Cc", "Zs"), exclude_characters="\"'\\"), min_size=6, max_size=30),
)
def test_any_value_without_white_space_behind_a_secret_name_goes(name: str, sign: str, value: str) -> None:
    assert value not in redact.text(f"run {name}{sign}{value}").replace(f"{name}{sign}", "", 1) or value in redact.REDACTED


@given(st.lists(st.text(max_size=40), max_size=6))
def test_no_command_breaks_redaction(words: list[str]) -> None:
    result = redact.argv(words)
    assert len(result) == len(words)
    assert isinstance(redact.text("\n".join(words)), str)


@pytest.mark.parametrize("words", [["-pp", "2"], ["-pp=2"], ["-pcp", "4", "-tp", "2", "-dp", "2"]])
def test_numbers_of_ranks_are_no_passwords(words: list[str]) -> None:
    assert redact.argv(["vllm", "serve", "m", *words]) == ["vllm", "serve", "m", *words]
    assert redact.text(" ".join(words)) == " ".join(words)


@pytest.mark.parametrize("word", ["-ppassword", "-pcpCANARY", "-pp=CANARY", "-ppx"])
def test_a_password_that_begins_like_one_is_taken_out(word: str) -> None:
    assert redact.text(f"tool {word}") == f"tool -p{redact.REDACTED}"
