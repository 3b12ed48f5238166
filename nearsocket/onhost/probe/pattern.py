"""The numbers that ranks add up: exact in bf16, in 16-bit lanes and in any order of addition, so that every element can be checked.

Element i of rank r is `i % PERIOD + r`, at most 24 in a group of sixteen; the sum over sixteen ranks stays below 256, which
bf16's eight bits of precision still hold exactly.
"""

from __future__ import annotations

#: Elements after which the pattern begins anew: no divisor of a chunk or channel size, so that shifted data is wrong data.
PERIOD = 7
MOST_RANKS = 16
#: bf16, as the engines exchange.
ELEMENT_BYTES = 2


def value(index: int, rank: int) -> int:
    """The number that this rank gives at this place."""
    return index % PERIOD + rank


def total(index: int, count: int) -> int:
    """The sum that every one of `count` ranks must find at this place."""
    return count * (index % PERIOD) + count * (count - 1) // 2
