"""The engine behind HTTP, in the form of OpenAI's API.

`worker` runs the engine in a thread of its own, `protocol` says what requests and responses look
like, `answers` turns one into the other, `app` has the routes, `metrics` the counters,
`connection` how bytes are received.
"""
