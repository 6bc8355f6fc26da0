import rota

app = rota.App()


@app.task(every_s=2)
def hello():
    print("hello")
