"""The engine behind HTTP, in the form of OpenAI's API.

`worker` talks with the engine's process (`loop`, by `wire`), `protocol` says what requests and
responses look like, `answers` turns one into the other, `app` has the routes, `guards` what a
request passes before, `metrics` the counters, `connection` how bytes are received.
"""
