"""Errors in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}`."""

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

TYPES = {
    401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
    503: "service_unavailable",
}  # fmt: skip

log = logging.getLogger("yaie.server")


class ErrorDetail(BaseModel):
    """What went wrong; `param` names the field of the request that is to blame, if one is."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(BaseModel):
    """The body of every response that is an error."""

    error: ErrorDetail


class ApiError(Exception):
    """An error to answer with its `body`; one that `closes` also closes the connection."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None,
        closes: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.closes = status, closes
        kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        found = {"message": message, "type": kind, "param": param, "code": code}
        self.body = {"error": found}

    def response(self) -> JSONResponse:
        """As an HTTP response."""
        headers = {"Connection": "close"} if self.closes else {}
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            headers["Retry-After"] = "1"
        return JSONResponse(self.body, self.status, headers)


def install(app: FastAPI) -> None:
    """Have every error of an app take this form."""

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> JSONResponse:
        return error.response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        message, path = str(error.detail), request.scope["path"]
        if error.status_code == HTTPStatus.NOT_FOUND:
            paths = dict.fromkeys(r.path_format for r in app.routes if isinstance(r, APIRoute))
            message = f"nothing is at {path!r}: ask for {', '.join(paths)}"
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            message = f"{path!r} takes {error.headers['Allow']}, not {request.method}"
        response = ApiError(error.status_code, message).response()
        response.headers.update(error.headers or {})
        return response

    app.exception_handler(Exception)(unexpected)


def unexpected(request: Request, error: Exception) -> JSONResponse:
    """The answer if the server itself fails; the log says why."""
    name = request.scope["request_id"]
    log.error("%s: %s %s failed", name, request.method, request.url.path, exc_info=error)
    return ApiError(500, "the server failed; its log says why").response()


def from_validation(error: ValidationError) -> ApiError:
    """What pydantic says of a wrong field, in one sentence; an unknown field comes first."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first, param = problems[0], _field(problems[0])
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{param} is not supported by this server", param=param)
    # A field that may be one of several types has a problem for each.
    root = param.split(".")[0]
    said = dict.fromkeys(p["msg"] for p in problems if _field(p).split(".")[0] == root)
    return ApiError(400, f"{param or 'the body'}: {', or: '.join(said)}", param=param or None)


def _field(problem: dict) -> str:
    """The path of a field in the request, without the branches of unions that pydantic names, as in
    `stop.list[str].0`."""
    return ".".join(str(p) for p in problem["loc"] if isinstance(p, int) or p.isidentifier())
