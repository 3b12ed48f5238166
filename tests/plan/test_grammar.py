"""Values survive systemd's and Docker's grammars, or are refused: read back by parsers written from the manual pages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearsocket.model import env_file, systemd
from nearsocket.model.errors import NearsocketError
from nearsocket.model.settings import Runtime

ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "s": " "}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
TRICKY = [
    "",
    " ",
    ";",
    "a b",
    '"',
    "'",
    "\\",
    "a\\",
    "%n",
    "%%",
    "$HOME",
    "${HOME}",
    "$$",
    "`id`",
    "ä ö",
    "#x",
    "-x",
    "@x",
    "a\\nb",
    "\u2028",
]


def command_line(text: str, environment: dict[str, str] | None = None) -> list[str]:
    """The words of an ExecStart= value: split at blanks, quotes, C escapes, then `%%`, then `$$` (systemd.service(5))."""
    words: list[str] = []
    at, word, started, quote = 0, "", False, ""
    while at <= len(text):
        character = text[at] if at < len(text) else ""
        if not character or (character in " \t\n" and not quote):
            assert not quote
            if started:
                words.append(word)
            word, started = "", False
        elif character == "\\":
            at += 1
            word, started = word + ESCAPES[text[at]], True
        elif quote:
            word, quote = (word, "") if character == quote else (word + character, quote)
        elif character in "\"'":
            quote, started = character, True
        else:
            word, started = word + character, True
        at += 1
    return [expand(specifiers(word), environment or {}) for word in words]


def specifiers(word: str) -> str:
    """`%%` to `%`; any other specifier would change the value."""
    parts = word.split("%%")
    assert all("%" not in part for part in parts)
    return "%".join(parts)


def expand(word: str, environment: dict[str, str]) -> str:
    """`$$` to `$`; any other `$` would be a variable."""
    parts = word.split("$$")
    assert all("$" not in part for part in parts), word
    return "$".join(parts)


def environment_file(text: str) -> dict[str, str]:
    """A file of `EnvironmentFile=` with double-quoted values (systemd.exec(5))."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        assert value[0] == value[-1] == '"'
        made, at, inner = "", 0, value[1:-1]
        while at < len(inner):
            if inner[at] == "\\" and inner[at + 1] in '\\"`$':
                at += 1
            else:
                assert inner[at] not in '"`$'
            made, at = made + inner[at], at + 1
        found[name] = made
    return found


def try_word(text: str) -> str | None:
    try:
        return systemd.word(text)
    except NearsocketError:
        return None


@settings(deadline=None)
@given(st.lists(TEXTS | st.sampled_from(TRICKY), max_size=5))
def test_words_come_back_as_they_were_or_are_refused(texts: list[str]) -> None:
    written = [(text, try_word(text)) for text in texts]
    kept = [text for text, word in written if word is not None]
    assert command_line(" ".join(word for _, word in written if word is not None)) == kept
    for text, word in written:
        assert (word is None) == any(ord(c) < 32 or c in "\x7f\x85\u2028\u2029" for c in text)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["A", "B_1", "_c"]), TEXTS | st.sampled_from(TRICKY)))
def test_environment_files_of_systemd_come_back(values: dict[str, str]) -> None:
    try:
        text = systemd.environment_file(values)
    except NearsocketError:
        assert any(ord(c) < 32 or c in "\x7f\x85\u2028\u2029" for value in values.values() for c in value)
        return
    assert environment_file(text) == values


@settings(deadline=None)
@given(TEXTS | st.sampled_from(TRICKY))
def test_assignments_come_back(value: str) -> None:
    try:
        written = systemd.assignment("NAME", value)
    except NearsocketError:
        return
    [word] = command_line(written.replace("$", "$$"))  # Environment= knows no variables
    assert word == f"NAME={value}"


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["A", "B_1", "_c"]), TEXTS | st.sampled_from(TRICKY)), st.sampled_from(Runtime))
def test_docker_reads_back_each_value_whole(values: dict[str, str], runtime: Runtime) -> None:
    try:
        lines = env_file.lines(values, runtime)
    except NearsocketError:
        return
    read = {}
    for line in "\n".join(lines).split("\n") if lines else []:
        line = line.lstrip(" \t").removesuffix("\r")
        assert line
        assert not line.startswith("#")
        name, _, value = line.partition("=")
        read[name] = value
    assert read == values


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00b", "\x1b[31m", "x" * 70_000])
def test_what_an_environment_file_cannot_hold_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(NearsocketError) as caught:
        env_file.lines({"TOKEN": value}, Runtime.DOCKER)
    assert "TOKEN" in caught.value.message
    assert value not in caught.value.message


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=B", "A-B"])
def test_a_variable_has_a_name(name: str) -> None:
    for write in (lambda: env_file.lines({name: "x"}, Runtime.DOCKER), lambda: systemd.environment_file({name: "x"})):
        with pytest.raises(NearsocketError, match="variable's name"):
            write()


def test_podman_gets_no_value_that_begins_with_a_quote() -> None:
    assert env_file.lines({"A": '"x"'}, Runtime.DOCKER) == ['A="x"']
    with pytest.raises(NearsocketError, match="begin with a quote"):
        env_file.lines({"A": '"x"'}, Runtime.PODMAN)


@pytest.mark.parametrize("word", ["a b", '"a"', "$x", "", "a;b"])
def test_a_value_that_is_split_again_holds_plain_words_alone(word: str) -> None:
    with pytest.raises(NearsocketError):
        systemd.split(["--ok=1,2", word])
    assert systemd.split(["--ok=1,2", "x"]) == "--ok=1,2 x"


def test_texts_and_paths_and_comments_stay_on_their_line() -> None:
    assert systemd.path("/srv/a b%n") == '"/srv/a b%%n"'
    assert systemd.text_value("50 %", "Description") == "50 %%"
    assert systemd.comment("ends in \\") == "# ends in \\."
    with pytest.raises(NearsocketError, match="backslash"):
        systemd.text_value("ends in \\", "Description")
