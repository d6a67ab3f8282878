"""`/mcp`: the JSON-RPC dialect in which OpenEnv's clients list and call tools."""

from __future__ import annotations

from typing import Any

from ludus.errors import LudusError

from .game import Game
from .shapes import CALL_TOOL, error_data

INVALID_REQUEST, NO_METHOD, BAD_PARAMETERS, FAILED = -32600, -32601, -32602, -32000


class RpcError(Exception):
    """A request that cannot be carried out, with its code in JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


async def answer_json_rpc(game: Game, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request on the client's game, and return the response; never raises for what
    the request asks.
    """
    try:
        result = await _result(game, *read_call(request))
    except (LudusError, RpcError) as error:
        return refusal(request, error)
    return response(request, result)


def read_call(request: object) -> tuple[str, dict[str, Any]]:
    """Return the method and the parameters of a request.

    Raises:
        RpcError: it is not a request of JSON-RPC 2.0.
    """
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "not a request of JSON-RPC 2.0")
    method, parameters = request.get("method"), request.get("params") or {}
    if not isinstance(method, str) or not isinstance(parameters, dict):
        raise RpcError(INVALID_REQUEST, "a request has a 'method' and an object 'params'")
    return method, parameters


def response(request: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Return the response to a request that was carried out."""
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


def refusal(request: object, error: LudusError | RpcError) -> dict[str, Any]:
    """Return the response to a request that failed."""
    error_object: dict[str, Any] = (
        {"code": error.code, "message": str(error)}
        if isinstance(error, RpcError)
        else {"code": FAILED, "message": error_data(error)["message"], "data": error_data(error)}
    )
    request_id = request.get("id") if isinstance(request, dict) else None
    return {"jsonrpc": "2.0", "id": request_id, "error": error_object}


async def _result(game: Game, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if method == "tools/list":
        return {"tools": [{**tool, "inputSchema": tool["input_schema"]} for tool in game.tools]}
    if method != "tools/call":
        raise RpcError(NO_METHOD, f"no method {method!r}; known: tools/list, tools/call")
    name, arguments = parameters.get("name"), parameters.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise RpcError(BAD_PARAMETERS, "tools/call takes 'name' and an object 'arguments'")
    if game.state().task == "":
        await game.reset({})
    call = {"type": CALL_TOOL, "tool_name": name, "arguments": arguments}
    result = await game.step(call, carries_images=False)
    text = result.observation["text"]
    return {
        "content": [{"type": "text", "text": text}],
        "data": text,
        "structured_content": {"reward": result.reward, "done": result.done},
    }
