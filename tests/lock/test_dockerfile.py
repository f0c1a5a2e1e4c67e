"""The Dockerfile lint: each unrepeatable line is named, and a repeatable file is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.lock.dockerfile import lint_dockerfile, lint_script

BASE = "FROM base@sha256:" + "a" * 64 + "\n"
COMMIT = "b" * 40


def codes(text: str) -> list[str]:
    return [item.code for item in lint_dockerfile(text)]


def run(command: str) -> list[str]:
    return codes(f"{BASE}RUN {command}\n")


def test_the_ranges_of_a_neuron_dockerfile_are_named_with_what_the_lock_has() -> None:
    text = (
        BASE
        + "RUN pip install neuronx-cc==2.20.* torch-neuronx==2.7.* torchvision\n"
        + "RUN apt-get update && apt-get install -y libgomp1\n"
        + "RUN git clone https://example.invalid/torchtitan.git\n"
    )
    found = lint_dockerfile(text, locked={"neuronx-cc": "2.20.9961.0+0acef03a"})
    assert [item.code for item in found] == [*["dockerfile.pip"] * 3, "dockerfile.apt", "dockerfile.git"]
    assert found[0].message == (
        "Dockerfile:2: neuronx-cc==2.20.* is a range; the lock says 2.20.9961.0+0acef03a. "
        "Next: install the hashed lock."
    )
    assert found[3].message.startswith("Dockerfile:3: apt installs libgomp1 without version")
    assert "https://example.invalid/torchtitan.git without a commit" in found[4].message


@pytest.mark.parametrize(
    "text",
    [
        BASE,
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE} AS one\nFROM one\nCOPY --from=one /a /a\nCOPY --from=0 /a /a\n",
        f"ARG BASE_IMAGE=base@sha256:{'a' * 64}\nFROM $BASE_IMAGE\n",
        f"FROM --platform=linux/amd64 base:v1@sha256:{'a' * 64} AS Build\nFROM build\nFROM scratch\n",
        f"ARG DIGEST=x\nFROM base@sha256:{'a' * 64}\nCOPY --from=base@sha256:{'c' * 64} /a /a\n",
    ],
)  # fmt: skip
def test_a_base_by_digest_is_fine(text: str) -> None:
    assert codes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "FROM public.ecr.aws/neuron/train:2.9.0\n",
        "FROM base\n",
        "ARG BASE_IMAGE=base:latest\nFROM ${BASE_IMAGE}\n",
        "FROM ${UNKNOWN}\n",
        "FROM base@sha256:abc\n",
        BASE + "COPY --from=tools:latest /a /a\n",
        "from base:v1 as x\n",
    ],
)
def test_a_base_by_tag_is_a_finding(text: str) -> None:
    assert codes(text) == ["dockerfile.base"]


def test_a_file_without_a_base_is_not_a_pass() -> None:
    assert codes("RUN true\n") == ["dockerfile.empty"]
    assert codes("") == ["dockerfile.empty"]


@pytest.mark.parametrize(
    "command",
    [
        "pip install --no-deps --require-hashes -r requirements.lock",
        "/opt/venv/bin/python -m pip install --require-hashes --no-deps --requirement requirements.lock",
        "uv pip install --no-deps --require-hashes -r /locks/a.lock -r /locks/b.lock --python /usr/bin/python3",
        "pip3.14 install --no-deps .",
        "pip install --no-deps /src/harness $EXTRA",
        f"pip install --no-deps git+https://example.invalid/x.git@{COMMIT}",
        "pip list && pip check",
        "apt-get update && apt-get install -y --no-install-recommends git=1:2.39.5-0 curl=7.88.1",
        "apt-get install -y ./local.deb",
        "apt-get upgrade",
        f"git clone https://example.invalid/x.git && git -C x checkout {COMMIT}",
        "echo 'pip install torch'",
        "set -o pipefail; make | tee log",
        "set -euo pipefail && make 2>&1 | tee log",
        "echo a | grep a",
    ],
)
def test_a_repeatable_command_is_fine(command: str) -> None:
    assert run(command) == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("pip install torch", "pip"),
        ("pip install 'torch>=2'", "pip"),
        ("pip install torch==2.9.0", "pip"),
        ("pip install torch==2.9.0+cpu --index-url https://example.invalid", "pip"),
        ("pip install -r requirements.txt", "pip"),
        ("pip install -rrequirements.txt", "pip"),
        ("python3 -m pip install -U torch[opt]", "pip"),
        ("uv pip install --system torch", "pip"),
        ("pip install .", "pip"),
        ("pip install git+https://example.invalid/x.git@main", "pip"),
        ("true && (pip install torch)", "pip"),
        ("VAR=1 pip install torch", "pip"),
        ("apt-get install -y git", "apt"),
        ("apt install git=1 curl", "apt"),
        ("DEBIAN_FRONTEND=noninteractive apt-get -y install git", "apt"),
        ("git clone --depth 1 --branch v1 https://example.invalid/x.git", "git"),
        ("make | tee log", "pipefail"),
        ("make 2>&1 |tee log; set -o pipefail", "pipefail"),
        ("make |& /usr/bin/tee -a log", "pipefail"),
    ],
)
def test_an_unrepeatable_command_is_a_finding(command: str, code: str) -> None:
    assert run(command) == [f"dockerfile.{code}"]


def test_a_shell_with_pipefail_counts_until_the_next_stage() -> None:
    shell = 'SHELL ["/bin/bash", "-o", "pipefail", "-c"]\n'
    assert codes(f"{BASE}{shell}RUN make | tee log\n") == []
    assert codes(f"{BASE}{shell}{BASE}RUN make | tee log\n") == ["dockerfile.pipefail"]


def test_a_dated_snapshot_stands_for_the_versions_of_debian_packages() -> None:
    dated = (
        "RUN echo 'deb http://snapshot.example.invalid/debian/20261101T000000Z bookworm main' > /etc/apt/s\n"
    )
    assert codes(f"{BASE}{dated}RUN apt-get install -y git\n") == []
    assert codes(f"{BASE}RUN apt-get install -y git\n{dated}") == ["dockerfile.apt"]


def test_downloads_need_a_checksum() -> None:
    assert codes(f"{BASE}ADD https://example.invalid/x /x\n") == ["dockerfile.download"]
    assert codes(f"{BASE}ADD --checksum=sha256:{'a' * 64} https://example.invalid/x /x\n") == []


def test_continued_lines_comments_and_heredocs_keep_their_line_numbers() -> None:
    text = (
        "# syntax\n" + BASE + "RUN apt-get update \\\n  # why\n  && apt-get install -y \\\n     git \\\n"
        "  && pip install a\nRUN <<EOF\nset -o pipefail\nmake | tee log\npip install b\nEOF\nRUN pip install c\n"
    )
    assert [item.message.split(" ")[0] for item in lint_dockerfile(text)] == [
        "Dockerfile:5:",
        "Dockerfile:7:",
        "Dockerfile:11:",
        "Dockerfile:13:",
    ]


def test_scripts_are_linted_for_lost_exit_codes() -> None:
    assert [item.code for item in lint_script("make | tee log\n", source="x.sh")] == ["dockerfile.pipefail"]
    assert lint_script("#!/bin/bash\nset -euo pipefail\nmake | tee log\n", source="x.sh") == ()
    assert lint_script("# make | tee log\nmake\n", source="x.sh") == ()


@given(st.text(alphabet="RUNFROM pip install\n\\\"'<>|&;#EOF=$@", max_size=80))
def test_no_text_breaks_the_lint(text: str) -> None:
    assert isinstance(lint_dockerfile(BASE + text), tuple)
