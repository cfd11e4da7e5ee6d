"""The cheap operations of Lfm2, each compiled into one pass over memory: training on CPUs waits for memory, not for sums.

Same mathematics as transformers' modules, which they stand in for while training; nothing that ships depends on it.
"""

from typing import Any

import torch
from torch.nn import functional
from transformers.models.lfm2 import modeling_lfm2


@torch.compile(dynamic=True)
def _norm(rows: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    values = rows.float()
    return (weight * (values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps))).to(torch.bfloat16)


@torch.compile(dynamic=True)
def _gate(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return functional.silu(left) * right


@torch.compile(dynamic=True)
def _short_convolution(projected: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """`C * conv(B * x)` for projections  # [samples, length, 3 * width] and taps  # [width, kernel]."""
    before, after, values = projected.float().chunk(3, dim=-1)
    gated = before * values
    length, kernel = gated.shape[1], taps.shape[1]
    padded = functional.pad(gated, (0, 0, kernel - 1, 0))
    total = padded[:, kernel - 1 : kernel - 1 + length] * taps[:, kernel - 1]
    for tap in range(kernel - 1):
        total = total + padded[:, tap : tap + length] * taps[:, tap]
    return (after * total).to(torch.bfloat16)


@torch.compile(dynamic=True)
def _position(
    heads: torch.Tensor, weight: torch.Tensor, eps: float, cosine: torch.Tensor, sine: torch.Tensor
) -> torch.Tensor:
    """Norm and rotary position of queries or keys  # [samples, length, heads, head width]."""
    values = heads.float()
    values = weight * (values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps))
    half = values.shape[-1] // 2
    turned = torch.cat((-values[..., half:], values[..., :half]), dim=-1)
    return (values * cosine[:, :, None] + turned * sine[:, :, None]).to(torch.bfloat16)


@torch.compile(dynamic=True)
def _causal_shares(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Softmax over what came before  # [samples, heads, length, length]."""
    places = torch.arange(scores.shape[-1])
    hidden = places[None, :] > places[:, None]
    return torch.softmax((scores.float() * scale).masked_fill(hidden, float("-inf")), dim=-1).to(
        torch.bfloat16
    )


def use_fused_operations() -> None:
    """Let every Lfm2 model of this process compute with them, under bfloat16 autocast and without a cache."""
    modeling_lfm2.Lfm2RMSNorm.forward = _norm_forward
    modeling_lfm2.Lfm2MLP.forward = _feed_forward
    modeling_lfm2.Lfm2ShortConv.forward = _convolution_forward
    modeling_lfm2.Lfm2Attention.forward = _attention_forward


def _norm_forward(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    shape = hidden_states.shape
    normed: torch.Tensor = _norm(hidden_states.reshape(-1, shape[-1]), self.weight, self.variance_epsilon)
    return normed.view(shape)


def _feed_forward(self: Any, x: torch.Tensor) -> Any:
    shape = x.shape
    rows = x.view(-1, shape[-1])
    return self.w2(_gate(self.w1(rows), self.w3(rows))).view(shape)


def _convolution_forward(self: Any, hidden_states: torch.Tensor, **kwargs: Any) -> Any:
    del kwargs
    return self.out_proj(_short_convolution(self.in_proj(hidden_states), self.conv.weight.squeeze(1)))


def _attention_forward(
    self: Any,
    hidden_states: torch.Tensor,
    position_embeddings: tuple[torch.Tensor, torch.Tensor],
    **kwargs: Any,
) -> tuple[Any, None]:
    del kwargs
    shape = (*hidden_states.shape[:-1], -1, self.head_dim)
    cosine, sine = position_embeddings
    queries, keys = (
        _position(
            project(hidden_states).view(shape), norm.weight, norm.variance_epsilon, cosine, sine
        ).transpose(1, 2)
        for project, norm in ((self.q_proj, self.q_layernorm), (self.k_proj, self.k_layernorm))
    )
    values = self.v_proj(hidden_states).view(shape).transpose(1, 2)
    shares = _causal_shares(torch.matmul(queries, keys.transpose(2, 3)), self.scaling)
    mixed = torch.matmul(shares, values).transpose(1, 2).reshape(*hidden_states.shape[:-1], -1)
    return self.out_proj(mixed), None
