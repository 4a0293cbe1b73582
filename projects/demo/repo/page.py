"""The page that shows the counter; `python3 page.py` serves it on $PORT."""

import http.server
import os

import visits
from resp import Redis

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Visits</title>
<style>
  body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: #f4f1ea; color: #26324a; font: 20px/1.5 sans-serif }
  main { text-align: center; padding: 3rem; background: #fff; border-radius: 1rem; box-shadow: 0 1rem 3rem #26324a22 }
  strong { display: block; font-size: 6rem; line-height: 1.2; color: #b3471d }
</style>
<main>
  <h1>Welcome</h1>
  <p>You are visitor number <strong>%d</strong></p>
</main>
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/ready":
            self.answer(204, "")
        elif self.path == "/":
            self.answer(200, PAGE % visits.record(self.server.redis, "/"))
        else:
            self.answer(404, "There is no such page.")

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    server = http.server.HTTPServer(("", int(os.environ.get("PORT", "8000"))), Handler)
    server.redis = Redis(os.environ.get("REDIS_HOST", "redis"))
    server.redis.delete("visits:/")
    server.serve_forever()


if __name__ == "__main__":
    main()
