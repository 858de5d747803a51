"""Writes expected.json: what a second, naive reading finds; shares no code with the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def read(path: Path) -> dict[str, Any]:
    """Read one capture: these servers end every event with two LF and write it on one line."""
    found: dict[str, Any] = {"text": "", "reasoning": "", "token_events": 0, "first_event_tokens": None}
    found |= {"finish_reason": None, "usage": None, "error": None, "reason": None, "done": False}
    calls: dict[int, dict[str, str]] = {}
    ids: list[int] = []
    with_ids = True
    for event in path.read_bytes().split(b"\n\n")[:-1]:
        payload = event[len(b"data: ") :]
        if payload == b"[DONE]":
            found["done"] = True
            continue
        chunk = json.loads(payload)
        if "error" in chunk:
            found["error"] = f"{chunk['error']['message']} (code {chunk['error']['code']})"
            found["reason"] = "error_object"
            continue
        found["usage"] = chunk.get("usage") or found["usage"]
        for choice in chunk["choices"]:
            if choice["index"] > 0:
                found["reason"] = "several_choices"
                continue
            delta = choice.get("delta", {})
            wrote = [
                choice.get("text"),
                delta.get("content"),
                delta.get("reasoning"),
                delta.get("tool_calls"),
            ]
            found["text"] += wrote[0] or wrote[1] or ""
            found["reasoning"] += wrote[2] or ""
            for call in wrote[3] or []:
                entry = calls.setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
                entry["id"] += call.get("id") or ""
                entry["name"] += call["function"].get("name") or ""
                entry["arguments"] += call["function"].get("arguments") or ""
            ids += choice.get("token_ids") or []
            found["finish_reason"] = choice["finish_reason"] or found["finish_reason"]
            if any(wrote):
                found["token_events"] += 1
                with_ids = with_ids and choice.get("token_ids") is not None
                if found["token_events"] == 1 and "usage" in chunk:
                    found["first_event_tokens"] = chunk["usage"]["completion_tokens"]
    if found["usage"] is None and found["reason"] is None:
        found["reason"] = "no_usage"
    return found | {
        "tool_calls": [calls[index] for index in sorted(calls)],
        "token_ids": ids if with_ids else None,
    }


def main() -> None:
    """Write expected.json beside this file."""
    streams = [path for path in sorted(HERE.glob("vllm-*/*.raw")) if ".err_" not in path.name]
    expected = {f"{path.parent.name}/{path.name}": read(path) for path in streams}
    lines = [
        f"{json.dumps(name)}: {json.dumps(found, ensure_ascii=False)}" for name, found in expected.items()
    ]
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
