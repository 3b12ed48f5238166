"""The findings of the probes as pages of the documentation: they are measured, so no function of a host alone gives them."""

from __future__ import annotations

from nearsocket.model.check import Afterwards


def _page(id: str, summary: str, explanation: str, file: str) -> Afterwards:
    path = f"nearsocket/model/probe/{file}.py"
    return Afterwards(id, summary, explanation, "probe", where=f"Judged by `nearsocket probe` in [{path}](../../{path}).")


PAGES = (
    _page(
        "probe.allreduce",
        "All-reduces give the right sum in every element, and end.",
        """**Judged**: one start of the ranks. Each size is filled with whole numbers that bf16 adds exactly and compared
element by element,
before the timed calls and after them; the timed calls add zeros, which must stay zeros.

- **pass**: every element right at every size, and every rank done in time.
- **fail**: an element is wrong (how many, where, on which rank); a rank ended, raised an error or did not answer in time.
- **unknown**: nothing was measured, since no size fits into the free memory.

**Remedy**: look at the audit, the kernel's log (`Xid`) and the GPUs' ECC counters. A wrong sum is never a matter of speed.""",
        "allreduce",
    ),
    _page(
        "probe.baseline",
        "All-reduces are as fast as this host has shown before.",
        """**Judged**: each size against the figures kept on the host under the same key: fingerprint, driver, NCCL, image,
backend, GPUs and the variables of the ranks.
A difference counts where the rounds' ranges do not meet and the medians differ by more than the wider range, 3 % at least.

- **pass**: no size is slower by 10 % or more beyond the noise.
- **warn**, **fail**: one is slower by 10 %, by 30 %. Far buffers cost 140 %.
- **not-applicable**: no baseline is kept under this key. `--keep-baseline` keeps the run's figures.

**Remedy**: `nearsocket audit` for placement, PCIe links and throttling; where the change is meant, keep new figures.""",
        "baseline",
    ),
    _page(
        "probe.contrast",
        "What a far buffer costs on this host, by forcing one near and one far.",
        """**Judged**: starts forced near and far in turn, with `NCCL_CUMEM_ENABLE=0` on both sides, since cuMem allocates near
whatever
binds the ranks. Nothing is judged as wrong.

- **pass**: far is slower (how much, from which size up); or "no benefit here": it is not, or no data passes through host memory.
- **unknown**: the buffers did not land where they were forced, so that the two sides say nothing.""",
        "allreduce",
    ),
    _page(
        "probe.lottery",
        "Every start puts the buffers near, not only the one that runs now.",
        """**Judged**: many starts of a small group of ranks as configured, and as many with nothing that binds and
`NCCL_CUMEM_ENABLE=0`,
in turn; with `--fill` the near nodes are full of page cache before each, as after reading weights. Shares come with the exact
95 % interval of Clopper and Pearson.

- **pass**: every draw as configured landed near.
- **fail**: one landed far or split; or a start did not end well.
- **unknown**: draws could not be seen.
- **not-applicable**: the ranks exchange nothing through host memory.

**Remedy**: `nearsocket plan` says which layers hold a replica, and why others do not.""",
        "lottery",
    ),
    _page(
        "probe.prefill",
        "How fast the running engine reads a cold prompt.",
        """**Judged**: salted prompts, one at a time, one new token each, the engine's own count of prompt and cached tokens in
each answer.
A first and a last part ask the same engine; with two engines they are asked in turn in between.

- **pass**: every prompt was cold, and the two baselines agree within the bound (0.5 %).
- **fail**: void. A token came from the cache, or the engine does not tell.
- **unknown**: the baselines differ by more; or the run ended early: a GPU too warm or slowing down, the time over.""",
        "prefill",
    ),
    _page(
        "probe.sweep",
        "Which of NCCL's settings are faster here than those in force.",
        """**Judged**: every combination and the replica's own, each started several times, in turn. Nothing is judged as
wrong: the table says
which differences exceed the noise, and the summary what beats the setting in force at the decode and the prefill size.

- **pass**: measured.
- **unknown**: the setting in force did not run.

A setting that wins at 12 KiB may lose at 48 MiB: LL halves large messages' bandwidth.""",
        "allreduce",
    ),
)
