"""What an nccl- file is for, told from its size. NCCL writes no role anywhere, so the size is all there is.

Sizes follow from NCCL's sources, tags 2.18.1-1 to 2.30.7-1. `ncclShmOpen` adds a 4-byte reference count to each.

- Ring, receive side: `shmRecvSetup` in src/transport/shm.cc asks for sizeof(ncclRecvMem), 4,096 B, plus the three
  protocols' buffers (src/init.cc: LL 524,288 B, LL128 4,915,200 B, Simple = NCCL_BUFFSIZE, 4 MiB by default): 9,637,888 B,
  so 2,354 pages of 4 KiB.
- Ring, send side: sizeof(ncclSendMem), 4,096 B: 2 pages, a control block.
- Proxy pool: sizeof(ncclProxyOpsPool), made by `proxyProgressInit` in src/proxy.cc for the CPU threads alone. It grows with
  the version; the sizes below are the struct's, compiled, and the sizes that users' "failed to extend" messages show.
"""

from __future__ import annotations

from nearsocket.model.host import BufferRole

PAGE_BYTES = 4096
#: The smallest buffer that can carry what GPUs exchange; smaller files are control blocks.
LARGE_BYTES = 1 << 20
REFERENCE_COUNT_BYTES = 4
#: A ring file without its Simple buffer: ncclRecvMem + LL + LL128.
RING_BASE_BYTES = 4096 + 524_288 + 4_915_200
#: NCCL_BUFFSIZE's default (src/init.cc, DEFAULT_BUFFSIZE).
BUFFSIZE_BYTES = 1 << 22
#: Ring sizes for every NCCL_BUFFSIZE that is a power of two from 64 KiB to 1 GiB.
RING_SIZES = frozenset(RING_BASE_BYTES + (1 << exponent) for exponent in range(16, 31))
#: Pool sizes of 2.18, 2.20, 2.21-2.22, 2.23, 2.24, 2.25, 2.26-2.27 and 2.28-2.30.
POOL_SIZES = frozenset({4_194_656, 5_767_520, 7_340_384, 10_486_112, 14_156_128, 31_850_880, 33_030_528, 34_210_176})


def role_of(size_bytes: int, page_bytes: int = PAGE_BYTES) -> BufferRole:
    """The role of a file of `size_bytes`: its length, or the bytes of its pages where only those are known.

    `page_bytes` is the page size that the bytes were counted in. A file of 1 MiB or more that is neither a known ring nor a
    known pool is `unknown` and is judged like a ring: a size that is not understood is no reason to look away.
    """
    if size_bytes < LARGE_BYTES:
        return BufferRole.CONTROL
    pages = _pages(size_bytes, page_bytes)
    if pages in _page_counts(RING_SIZES, page_bytes):
        return BufferRole.RING
    if pages in _page_counts(POOL_SIZES, page_bytes) or pages - 1 in _page_counts(POOL_SIZES, page_bytes):
        return BufferRole.PROXY_POOL  # seen with 2.30.7: 8,353 pages and one more
    return BufferRole.UNKNOWN


def carries_payload(role: BufferRole, size_bytes: int) -> bool:
    """Whether such a file counts for placement: rings, and unknown ones of 1 MiB or more."""
    return role is BufferRole.RING or (role is BufferRole.UNKNOWN and size_bytes >= LARGE_BYTES)


def _pages(size_bytes: int, page_bytes: int) -> int:
    return -(-size_bytes // page_bytes)


def _page_counts(sizes: frozenset[int], page_bytes: int) -> set[int]:
    """Pages of these buffers, with and without the reference count (a log names the size without it)."""
    return {_pages(size + extra, page_bytes) for size in sizes for extra in (0, REFERENCE_COUNT_BYTES)}
