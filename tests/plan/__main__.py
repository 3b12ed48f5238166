"""`python -m tests.plan`: write the reviewed renderings anew."""

from __future__ import annotations

from tests.plan.rendered import write_all

write_all()
