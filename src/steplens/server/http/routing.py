"""What all addresses have in common: how the OpenAPI document names them, and what they answer instead of what was asked for."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.routing import APIRoute

from steplens.server.http.errors import PROBLEMS


def create_router(prefix: str, tag: str) -> APIRouter:
    """The addresses of one area.

    Args:
        prefix: what all of them begin with.
        tag: the heading in the OpenAPI document under which they stand.
    """
    return APIRouter(prefix=prefix, tags=[tag], responses=PROBLEMS, generate_unique_id_function=_name_of)


def _name_of(route: APIRoute) -> str:
    return route.name
