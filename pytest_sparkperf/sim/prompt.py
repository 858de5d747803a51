"""From messages or a prompt field to the prompt's tokens, through a chat template like Qwen3's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pytest_sparkperf.sim.body import Body, RequestError, missing, type_error, unsupported
from pytest_sparkperf.sim.tokenizer import (
    END_OF_THINKING,
    END_OF_TURN,
    START_OF_TURN,
    THINK,
    VOCABULARY,
    tokenize,
)


def chat_prompt(body: Body) -> tuple[int, ...]:
    messages = body.get("messages")
    if messages is None:
        raise missing("messages", body)
    if not isinstance(messages, list) or not messages:
        raise type_error("messages", "a list with at least one message", messages, kind="list_type")
    parts = [_render_tools(body)]
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            wanted = "a list of objects with role and content"
            raise type_error("messages", wanted, message, kind="dict_type")
        text = _content_text(message.get("content"))
        calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
        parts.append(f"{START_OF_TURN}{message['role']}\n{text}{calls}{END_OF_TURN}\n")
    if body.get("add_generation_prompt", True):
        # Without thinking the template closes an empty thought itself, as Qwen3's does.
        closed = "" if wants_thinking(body) else f"\n{END_OF_THINKING}\n\n"
        parts.append(f"{START_OF_TURN}assistant\n{THINK}\n{closed}")
    return tokenize("".join(parts))


def _content_text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise type_error("messages.content", "a string or a list of parts", content, kind="string_type")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("image_url", "input_audio", "video_url", "audio_url"):
            noun = str(kind).removesuffix("_url").removeprefix("input_")
            raise RequestError(f"At most 0 {noun}(s) may be provided in one prompt.")
        if kind != "text":
            raise type_error("messages.content", "a list of text parts", part, kind="dict_type")
        texts.append(str(part.get("text", "")))
    return "".join(texts)


def completion_prompt(body: Body) -> tuple[int, ...]:
    prompt = body.get("prompt")
    if prompt is None:
        raise missing("prompt", body)
    if isinstance(prompt, str):
        ids = tokenize(prompt)
    elif isinstance(prompt, list) and all(type(item) is int and 0 <= item < VOCABULARY for item in prompt):
        ids = tuple(prompt)
    else:
        raise unsupported("prompt", prompt, "Send one text or one list of token ids.", show=False)
    if not ids:
        raise RequestError("The decoder prompt cannot be empty")
    return ids


def last_user_text(body: Body) -> str:
    """Return what the user says where that is the last message; empty where somebody else speaks last."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    said = isinstance(last, dict) and last.get("role") == "user"
    return _content_text(last.get("content")) if said and isinstance(last, dict) else ""


def tool_functions(body: Body) -> list[Mapping[str, object]]:
    tools = body.get("tools")
    if not isinstance(tools, Sequence):
        return []
    functions = (tool.get("function") for tool in tools if isinstance(tool, dict))
    return [function for function in functions if isinstance(function, dict)]


def _render_tools(body: Body) -> str:
    functions = tool_functions(body)
    if not functions:
        return ""
    return f"{START_OF_TURN}system\n# Tools\n{json.dumps(functions)}{END_OF_TURN}\n"


def wants_thinking(body: Body) -> bool:
    kwargs = body.get("chat_template_kwargs")
    return not (isinstance(kwargs, dict) and kwargs.get("enable_thinking") is False)
