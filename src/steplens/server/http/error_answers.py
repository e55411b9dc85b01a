"""What an error looks like to the browser."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from steplens.common.errors import SteplensError
from steplens.server.http.errors import OPENING, Problem, Refusal, of_input


def problem_response(status: int, body: Problem) -> JSONResponse:
    """An answer that holds a problem."""
    headers = {"Retry-After": "1"} if status == OPENING else None
    return JSONResponse(asdict(body), status, headers)


def register(app: FastAPI) -> None:
    """Let every error of the app have this form."""

    @app.exception_handler(Refusal)
    async def answer_refusal(request: Request, error: Refusal) -> JSONResponse:
        return problem_response(error.status, error.body)

    @app.exception_handler(SteplensError)
    async def answer_bad_input(request: Request, error: SteplensError) -> JSONResponse:
        return problem_response(409, of_input(error))

    @app.exception_handler(RequestValidationError)
    async def answer_invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        remedy = "The parameters are described in /api/openapi.json"
        return problem_response(422, Problem(problem=first["msg"], where=where, remedy=remedy))

    @app.exception_handler(HTTPException)
    async def answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return problem_response(error.status_code, Problem(problem=str(error.detail), where=request.url.path))

    @app.exception_handler(Exception)
    async def answer_unexpected_error(request: Request, error: Exception) -> JSONResponse:
        # the server prints the traceback on the terminal
        text = f"steplens failed to answer ({type(error).__name__}: {error})"
        return problem_response(
            500, Problem(problem=text, where=request.url.path, remedy="This is a defect of steplens; please report it")
        )
