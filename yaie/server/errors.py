"""Errors in the form of OpenAI's API: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

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
        found = {"message": message, "type": _type(status), "param": param, "code": code}
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

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return _from_validation(error).response()

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> JSONResponse:
        message = str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            paths = dict.fromkeys(r.path_format for r in app.routes if isinstance(r, APIRoute))
            message = f"nothing is at {request.scope['path']!r}: ask for {', '.join(paths)}"
        code = "invalid_json" if error.status_code == HTTPStatus.BAD_REQUEST else None
        if code:  # FastAPI's own message has no cause
            message = f"the body cannot be parsed: {error.__cause__}"
        response = ApiError(error.status_code, message, code=code).response()
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        name = request.scope.get("request_id", "")
        log.error("%s: %s %s failed", name, request.method, request.url.path, exc_info=error)
        response = ApiError(500, "the server failed; its log says why").response()
        response.headers["X-Request-Id"] = name  # which this handler is too far out to get
        return response


def _type(status: int) -> str:
    types = {
        401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
        499: "client_closed_request", 503: "service_unavailable",
    }  # fmt: skip
    return types.get(status, "server_error" if status >= 500 else "invalid_request_error")


def _from_validation(error: RequestValidationError) -> ApiError:
    """What pydantic says of the first field that is wrong, in one sentence."""
    problems = error.errors()
    first = problems[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "it cannot be parsed")
        return ApiError(400, f"the body is not valid JSON: {reason}", code="invalid_json")
    if first["loc"] == ("body",) and first["type"] == "model_attributes_type":
        return ApiError(400, "send a JSON object, with Content-Type: application/json")
    param = _field(first)
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{param} is not supported by this server", param=param)
    # A field that may be one of several types has a problem for each.
    root = param.split(".")[0]
    said = dict.fromkeys(p["msg"] for p in problems if _field(p).split(".")[0] == root)
    return ApiError(400, f"{param or 'the body'}: {', or: '.join(said)}", param=param or None)


def _field(problem: dict) -> str:
    """The path of a field in the request, without the branches of unions that pydantic names, as in
    `stop.list[str].0`."""
    path = [part for part in problem["loc"] if part != "body"]
    return ".".join(str(p) for p in path if isinstance(p, int) or p.isidentifier())
