"""Two jobs, no services: `rota up examples/hello.py`."""

import rota

app = rota.App()


@app.task(every_s=2, overlap={"policy": "allow", "live_max": 10_000})
def hello() -> str:
    return "hello"


@app.task(cron="*/5 * * * * *", overlap={"policy": "allow", "live_max": 10_000})
async def hello_again() -> str:
    return "hello again"
