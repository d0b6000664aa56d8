// What a caller hands to the step's kernels, shared by every instruction set. Computes nothing.
//
// kernels/cpu_ops.py mirrors these structures field by field: a change here is a change there, and
// raises TS_ABI.
#pragma once
#include "common.h"

// The arena and the shape of attention: fixed for a model. A page holds
// [layers, page_tokens, 2 (K, V), kv_heads x head_dim] elements. cos, sin: float
// [positions, head_dim], the sign of the rotation folded into sin.
struct TsArena {
    void *pages;
    int64_t page_elements, page_tokens;
    int64_t heads, kv_heads, head_dim;
    const float *cos, *sin;
    float scale, norm_eps;
    int64_t dtype, isa;
};

// The rows of a step (`PagedRows`). scratch: `ts_scratch_bytes` of it, aligned to 64.
struct TsPaged {
    int64_t sequences;
    const int64_t *first_row, *start, *first_page, *pages;
    char *scratch;
    int64_t threads;
};

// qkv: [rows, (heads + 2 kv_heads) x head_dim], q is rotated in place. q_norm, k_norm: [head_dim]
// or null. out: [rows, heads x head_dim].
struct TsAttend {
    int64_t layer;
    void *qkv;
    const float *q_norm, *k_norm;
    void *out;
};

// x += added (unless null), out = RMSNorm(x) * weight; [rows, width] each. A norm's weight is fp32
// whatever the model's dtype is.
struct TsNormed {
    float *x;
    const void *added;
    const float *weight;
    void *out;
    int64_t rows, width, threads;
    float eps;
};

// out [rows, width] = SiLU(gate) * up, of gate_up [rows, 2 width].
struct TsGated {
    const void *gate_up;
    void *out;
    int64_t rows, width, threads;
};

// The kernels of one instruction set; arrays are by TsDtype. Those made for
// bf16 (AMX, NEONBF16) have no others.
struct TsKernels {
    int64_t (*scratch_bytes)(const TsArena &, const TsPaged &);
    void (*attend[3])(const TsArena &, const TsPaged &, const TsAttend &);
    void (*normed[3])(const TsNormed &);
    void (*gated[3])(const TsGated &);
};

extern const TsKernels ts_kernels_plain, ts_kernels_avx2, ts_kernels_avx512, ts_kernels_amx,
    ts_kernels_neonbf16;
