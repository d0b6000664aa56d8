// What an output head's call is told, and the paths it may take. Declares; computes nothing.
//
// Semantics: out[r, v] = x[r] . w[v] with x in fp32 and w in bf16 or fp16: every product is exact,
// or rounded once to fp32, and sums are fp32. A row's bits do not depend on who shares the call.
// kernels/cpu_head.py fills the struct; all fields are int64, so that it is an array there.
#pragma once
#include "common.h"

// x: [rows, width] floats; w: [vocab, width]; out: rows of `vocab` floats, `out_stride` floats apart.
// `scratch`: 64-byte aligned, of `head_scratch_bytes`.
struct TsHead {
    int64_t isa, dtype, threads;
    int64_t x, rows, width;
    int64_t w, vocab;
    int64_t out, out_stride;
    int64_t scratch;
};

void head_plain(const TsHead &);
void head_avx2(const TsHead &);
void head_avx512(const TsHead &);
void head_amx(const TsHead &);
// Instead of logits: of each row the largest one, and its id (of equal ones the smallest). A row with
// a NaN has NaN. `out` is not looked at.
void head_best_amx(const TsHead &, float *best, int64_t *ids);
