"""Taking secrets out at the source: what a name says is secret never enters a snapshot.

A name is cut into its words (`--hf-token`, `MY_API_KEY`, `apiKey`); where one is a secret's word, the value goes. Plural
counts of the engines (`--max-total-tokens 4096`) stay, since their values are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

REDACTED = "<redacted>"
#: Stands for a header's value until the text's end is reached; no word of a command can hold it.
_DONE = "\0"

_WORD_LIST = (
    "key apikey token secret password passwd passphrase pass pwd credential credentials cred creds auth authorization"
    " authentication bearer cookie cookies signature sas jwt pat pin keys secrets passwords tokens login netrc"
)
_WORDS = frozenset(_WORD_LIST.split())
_ENDINGS = ("apikey", "accesskey", "secretkey", "privatekey", "token", "secret", "password", "passwd", "passphrase", "credentials")
_CUTS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
_COUNT = re.compile(r"-?\d{1,10}\Z|(?i:true|false|none|auto)\Z")

#: Names of the environment that a snapshot may hold: what NCCL, CUDA and the engines are tuned by.
_ALLOWED = (
    "NCCL_",
    "CUDA_",
    "NVIDIA_",
    "SGLANG_",
    "SGL_",
    "VLLM_",
    "OMP_",
    "MKL_",
    "PYTORCH_",
    "TORCH_",
    "FLASHINFER_",
    "GLOO_",
    "RAY_",
    "UCX_",
    "TRITON_",
    "HF_",
    "TRANSFORMERS_",
    "TOKENIZERS_",
)
_ALLOWED_WHOLE = "LD_PRELOAD LD_LIBRARY_PATH RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GOMP_CPU_AFFINITY KMP_AFFINITY MALLOC_CONF"

# Repetitions are bounded and values are matched behind secret names only: any process may choose its own command line, and
# a text made to be slow must not be.
# A value: quoted parts and bare ones in a row; an open quote takes the rest of its line.
_VALUE = re.compile(r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\\.|[^\s"'\\])+(?:["'][^\n]*)?|["'][^\n]*""")
# A name is tried where it begins alone, so that a long word is read once.
_ASSIGNED = re.compile(r"""(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]+)\\?["']?(?:\[\])?\s{0,4}(?::=|=>|[=:])[ \t]{0,4}""")
#: A header's value holds blanks and signs of its own: it ends with its quotes or its line.
_HEADER = re.compile(
    r"""(?P<name>(?P<quote>["'])?(?:(?<![\w-])|(?<=-H))(?:[\w-]{1,40}-)?"""
    r"""(?:authorization|authentication|(?:set-)?cookie2?):)[ \t]*"""
    r"""(?P<value>(?(quote)(?:(?!(?P=quote))[^\n])+|[^"'\n][^\n]*))""",
    re.IGNORECASE,
)
#: A word that ends in a name and a colon: its value is the words that follow.
_HEAD = re.compile(r"""["'{\[\\]*(?P<name>[A-Za-z_][\w.-]*)\\?["']?:\Z""")
_SCHEME_WORDS = frozenset({"bearer", "apikey", "negotiate", "ntlm"})
_OPTION = re.compile(r"""(?P<name>(?<![\w-])--?[A-Za-z][\w.-]{0,80})["']?[ \t]{1,8}(?!--[A-Za-z])""")
_NESTING = re.compile(r"""\\?["']|\\.|[][{}]""", re.DOTALL)
_MORE = re.compile(r"(?:[ \t]{1,8}(?![-;|&}#]|\\?\n)[^\s;|&]+)*")
_USERINFO = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?:[^\s/@\"']{0,400}|[^\s/@\"':]{0,200}:[^\s@\"']{0,400})@")
#: `user:password@host` without a scheme; a digest behind a tag (`image:tag@sha256:...`) is none.
_BARE_USERINFO = re.compile(r"(?<![\w.+%/-])[\w.+%-]{1,64}:[^\s/@\"':]{1,200}@(?!sha(?:256|512):)(?=[\w\[])")
#: curl's and others' `-u user:password`, glued or not; a user and group of numbers (`-u 1000:1000`) is none.
_USER = re.compile(
    r"(?P<name>(?<![\w-])(?:-[uU]|--(?:proxy-)?user)(?:[ \t=]{1,4}|(?<=-[uU])))"
    r"(?P<user>[\w.@+%\\-]{1,100}):(?!\d{1,10}(?!\S))[^\s:]\S{0,400}"
)
#: mysql's and others' `-pPASSWORD`; a port (`-p8000:8000/tcp`) and vLLM's numbers of ranks (`-pp 2`, `-pcp=2`) are none.
_GLUED = re.compile(r"(?<![\w-])-p(?!c?p(?:=\d{1,6})?(?!\S))(?![\d.:\[\]-]{1,60}(?:/(?:tcp|udp|sctp))?(?!\S))[^\s=,;]\S{0,400}")
#: Programs whose short option is a password's.
_PASSWORD_OPTIONS = {"sshpass": "-p", "redis-cli": "-a", "ldapsearch": "-w", "ldapwhoami": "-w", "smbclient": "-U"}
_PASSWORD_OPTIONS.update({"mysql": "-p", "mysqldump": "-p", "mariadb": "-p", "curl": "-b"})
_ASKED = "|".join(rf"\b{program}\b[^\n;|&]{{0,200}}?[ \t]{option}[ \t]*" for program, option in _PASSWORD_OPTIONS.items())
_IN_TEXT = re.compile(rf"(?P<before>{_ASKED})(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s;|&-]\S*)")
_USER_OPTIONS = ("-u", "-U", "--user", "--proxy-user")
_SCHEMES = re.compile(r"\b(?P<scheme>Bearer|Basic|Token|Api-?Key|Negotiate|NTLM)[ \t]+[A-Za-z0-9+/=._~-]{6,}", re.IGNORECASE)
#: Shapes that are secrets wherever they stand: Hugging Face, OpenAI-like, GitHub, NVIDIA, AWS, web tokens, key blocks.
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|nvapi-[\w-]{16,}"
    r"|xox[abprs]-[\w-]{10,}|A[KS]IA[A-Z0-9]{16}|eyJ[\w-]{8,}(?:\.[\w-]*)*)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)


def is_secret(name: str, value: str = "x") -> bool:
    """Whether a variable or option of that name holds a secret; a plain number under a plural name is a count."""
    words = [word.lower() for word in _CUTS.split(name) if word]
    if "tokens" in words and not _WORDS.intersection(words) - {"tokens"} and _COUNT.match(value.strip("\"'")):
        return False
    # `sig=` alone is a signed URL's; `module.sig_enforce` is not.
    return words == ["sig"] or any(word in _WORDS or word.endswith(_ENDINGS) for word in words)


def text(value: str) -> str:
    """The text with every secret value replaced: `name=value`, `name: value`, `--name value`, URLs, well-known shapes."""
    value = _SHAPES.sub(REDACTED, value)
    value = _USERINFO.sub(rf"\g<scheme>{REDACTED}@", value)
    value = _BARE_USERINFO.sub(f"{REDACTED}@", value)
    value = _HEADER.sub(rf"\g<name> {_DONE}", value.replace(_DONE, " "))
    value = _SCHEMES.sub(rf"\g<scheme> {REDACTED}", value)
    value = _IN_TEXT.sub(rf"\g<before>{REDACTED}", value)
    value = _GLUED.sub(f"-p{REDACTED}", _USER.sub(rf"\g<name>{REDACTED}", value))
    return _without_values(_OPTION, _without_values(_ASSIGNED, value)).replace(_DONE, REDACTED)


def _without_values(names: re.Pattern[str], value: str) -> str:
    """The text without the values behind secret names. A harmless name's value is looked through in turn."""
    parts: list[str] = []
    at = 0
    for match in names.finditer(value):
        if match.start() < at or value.startswith(_DONE, match.end()) or not is_secret(match["name"]):
            continue
        end = _nested_end(value, match.end())
        shown = REDACTED
        if not end:
            found = _VALUE.match(value, match.end())
            if not found or not is_secret(match["name"], found[0]):
                continue
            end, shown = found.end(), _around(found[0])
        parts.extend((value[at : match.end()], shown))
        at = end
        # An option may take several values (`--api-key K1 K2`): every word up to the next option or the command's end.
        more = _MORE.match(value, at) if names is _OPTION else None
        if more and more[0]:
            parts.append(f" {REDACTED}")
            at = more.end()
    return "".join(parts) + value[at:]


def _nested_end(value: str, start: int) -> int:
    """The end of the list or mapping that begins there, the text's end where it is not closed; 0 where none begins."""
    if value[start : start + 1] not in ("{", "["):
        return 0
    depth, quote = 0, ""
    for part in _NESTING.finditer(value, start):
        sign = part[0]
        if quote or sign[-1] in "\"'":
            quote = "" if sign == quote else quote or sign
        elif sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if not depth:
                return part.end()
    return len(value)


def _around(value: str) -> str:
    if len(value) > 1 and value[0] in "\"'" and value[0] == value[-1] and value.count(value[0]) == 2:
        return f"{value[0]}{REDACTED}{value[0]}"
    return REDACTED


def argv(words: Iterable[str]) -> list[str]:
    """A command's words, secret values replaced: `--api-key X Y` in words of their own, `--api-key=X` and `KEY=X` in one."""
    result: list[str] = []
    option, values = "", 0  # the secret option that the words after it belong to, and how many of them there were
    before, short = "", ""
    for word in words:
        # A value may begin with one dash; behind the first value an option ends the row (`--api-key K1 K2 -x`).
        if option and not re.match(r"--?[A-Za-z]" if values else r"--[A-Za-z]", word):
            secret = values > 0 or option == short or is_secret(option, word)
            result.append(REDACTED if secret else word)
            option, values = (option, values + 1) if secret and option != short else ("", 0)
        elif before in _USER_OPTIONS and _USER.match(f"-u {word}"):
            result.append(REDACTED)
        elif short and len(word) > len(short) and word.startswith(short):
            result.append(short + REDACTED)
        else:
            short = short or _PASSWORD_OPTIONS.get(word.rpartition("/")[2], "")
            named = word == short or (re.match(r"--?[A-Za-z][\w.-]*\Z", word) and is_secret(word))
            head = _HEAD.match(word)
            named = named or bool(head and is_secret(head["name"])) or word.lower() in _SCHEME_WORDS
            option, values = (word, 0) if named else ("", 0)
            result.append(_word(word))
        before = word
    return result


def _word(word: str) -> str:
    if _USER.match(word):
        return _USER.sub(rf"\g<name>{REDACTED}", word)
    name, equals, value = word.partition("=")
    if equals and re.match(r"-{0,2}[A-Za-z_][\w.-]*\Z", name):
        # The whole rest of a word is the value, white space included.
        return f"{name}={REDACTED if is_secret(name, value) else _nested(value)}"
    return _nested(word)


def _nested(value: str) -> str:
    name, equals, rest = value.partition("=")
    if equals and re.match(r"[A-Za-z_][\w.-]*\Z", name) and is_secret(name, rest):
        return f"{name}={REDACTED}"
    return text(value)


def allowed(pairs: Mapping[str, str]) -> dict[str, str]:
    """The variables that a snapshot may hold, as they stand; names that sound secret are left out."""
    return {
        name: value
        for name, value in sorted(pairs.items())
        if (name.startswith(_ALLOWED) or name in _ALLOWED_WHOLE.split()) and not is_secret(name, value)
    }


def environ(pairs: Mapping[str, str]) -> dict[str, str]:
    """The allowed variables only, sorted, secrets in their values redacted."""
    return {name: text(value) for name, value in allowed(pairs).items()}


def environ_words(words: Sequence[str]) -> dict[str, str]:
    """`environ` of `NAME=value` words."""
    return environ(dict(word.partition("=")[::2] for word in words if "=" in word))
