"""What an nccl- file is for, told from its size. NCCL writes no role anywhere, so the size is all there is.

Sizes are from NCCL's sources (tags 2.18.1-1 to 2.30.7-1):

- Ring, receive side: `shmRecvSetup` in src/transport/shm.cc asks for sizeof(ncclRecvMem), 4,096 B, plus the three
  protocols' buffers (src/init.cc: LL 524,288 B, LL128 4,915,200 B, Simple = NCCL_BUFFSIZE, 4 MiB by default): 9,637,888 B.
  `ncclShmOpen` adds a 4-byte reference count, so the file has 2,354 pages of 4 KiB.
- Ring, send side: sizeof(ncclSendMem), 4,096 B, and the count: 2 pages, control.
- Proxy pool: sizeof(ncclProxyOpsPool), made by `proxyProgressInit` in src/proxy.cc for the CPU threads alone.
"""

from __future__ import annotations

from nearsocket.model.host import BufferRole

PAGE_BYTES = 4096
#: The smallest buffer that can carry what GPUs exchange; smaller files are control blocks.
LARGE_BYTES = 1 << 20
#: A ring file without its Simple buffer: ncclRecvMem + LL + LL128.
RING_BASE_BYTES = 4096 + 524_288 + 4_915_200
#: NCCL_BUFFSIZE's default (src/init.cc, DEFAULT_BUFFSIZE).
BUFFSIZE_BYTES = 1 << 22
#: The default ring file without and with its reference count.
RING_BYTES = RING_BASE_BYTES + BUFFSIZE_BYTES
#: 8,354 pages were seen with NCCL 2.30.7 (two mappings, 8,353 + 1).
POOL_PAGES = frozenset({8353, 8354})


def role_of(size_bytes: int, page_bytes: int = PAGE_BYTES) -> BufferRole:
    """The role of a file of `size_bytes`: its length, or the bytes of its pages where only those are known.

    `page_bytes` is the page size that the bytes were counted in. Anything of 1 MiB or more that is neither a known ring
    nor a known pool is `unknown`, and is judged like a ring: a size that is not understood is no reason to look away.
    """
    if size_bytes < LARGE_BYTES:
        return BufferRole.CONTROL
    pages = -(-size_bytes // page_bytes)
    if page_bytes != PAGE_BYTES:
        return BufferRole.UNKNOWN
    if pages in POOL_PAGES:
        return BufferRole.PROXY_POOL
    if _is_ring(pages):
        return BufferRole.RING
    return BufferRole.UNKNOWN


def _is_ring(pages: int) -> bool:
    """Whether the pages are a ring's for some NCCL_BUFFSIZE that is a power of two from 64 KiB to 1 GiB."""
    simple = pages * PAGE_BYTES - RING_BASE_BYTES
    # With the reference count the file needs one page more than the buffers; a log or length tells the size without it.
    return any(size in (simple, simple - PAGE_BYTES) for size in (1 << exponent for exponent in range(16, 31)))


def carries_payload(role: BufferRole, size_bytes: int) -> bool:
    """Whether such a file counts for placement: rings, and unknown ones of 1 MiB or more."""
    return role is BufferRole.RING or (role is BufferRole.UNKNOWN and size_bytes >= LARGE_BYTES)
