import asyncio, time, pytest
from tests.contract.coordinator.test_sql import *
from tests.contract.coordinator.conftest import client
from tests.contract.conftest import migrated
from tests.conftest import *
@on_sql
async def test_stress(client):
    cs = [await joined(client) for _ in range(3)]
    start = time.monotonic(); n = 0; worst = 0
    while time.monotonic() - start < 40:
        n += 1
        keys = {f"jobs/{n}": "", f"jobs/{n}-x": ""}
        t = time.monotonic()
        won = await asyncio.gather(*(c.claim(keys) for c in cs))
        worst = max(worst, time.monotonic() - t)
        assert sorted(k for f in won for k in f) == sorted(keys), n
        await asyncio.gather(*(c.release(f) for c, f in zip(cs, won)), *(c.renew() for c in cs))
    print("\nrounds", n, "worst", round(worst, 3))
async def test_short(client):
    "ttl 2, not renewed: is the double win only after the session is over?"
