// What a LoRA call is told, and the paths it may take. Declares; computes nothing.
//
// Semantics: y[i] += x[i] . A[a(i)]^T . Bt[a(i)] for every module of a group, each on its own columns
// of y. A and Bt are read where they lie in the arena. kernels/cpu_lora.py fills these structs; all
// fields are int64, so that they are arrays there.
#pragma once
#include "common.h"

// One side of a pair: rank rows, `stride` bytes apart from address `at`. Stride 0: `at` is the
// address of a table of row addresses (a block that is split over pages).
struct TsSide {
    int64_t at, stride;
};

// One layer x module of an adapter; rank 0 where it has none.
struct TsPair {
    TsSide a, bt;
    int64_t rank;
};

// The linears that share an input. `width` of x in elements; module m of a layer's `TsPair`s adds
// to columns first .. first + out of y.
struct TsModule {
    int64_t index, first, out;
};
struct TsGroup {
    int64_t width, count;
    TsModule modules[4];
};

// The rows of one adapter in a step: rows[first] .. rows[first + count - 1]. Their t lies from float
// `t` of the scratch on, `t_width` a row, module by module. `tall`: consecutive rows, many enough
// for a matrix product by tiles.
struct TsEntry {
    int64_t pairs, first, count, t, t_width, tall;
};

// A step: `entries` of `count`, row numbers, scratch. `modules` pairs a layer.
struct TsStep {
    int64_t isa, dtype, threads, modules;
    int64_t entries, count, rows;
    int64_t t;                     // floats
    int64_t packed, packed_bytes;  // of each thread, 64-byte aligned
};

// x and y by address and bytes a row.
struct TsRows {
    const char *x;
    int64_t x_stride;
    char *y;
    int64_t y_stride;
};

void lora_plain(const TsStep &, const TsGroup &, int64_t layer, const TsRows &);
void lora_avx2(const TsStep &, const TsGroup &, int64_t layer, const TsRows &);
void lora_avx512(const TsStep &, const TsGroup &, int64_t layer, const TsRows &);

// Of a tall entry, rows from .. to of its `count`, the first at `x` or `y`; `from` is a multiple of
// 16. t is bf16 here, [count, t_width] for this module.
void tall_shrink(const TsPair &, int64_t width, int64_t count, int64_t from, int64_t to,
                 const char *x, int64_t stride, char *t, int64_t t_width, char *packed);
void tall_expand(const TsPair &, int64_t out, int64_t count, int64_t from, int64_t to, char *y,
                 int64_t stride, const char *t, int64_t t_width, char *packed);
// Tiles are set up for a thread's whole share, and what was set up before is put back.
void tiles_begin(char saved[64]);
void tiles_end(const char saved[64]);

static inline const char *row_of(const TsSide &side, int64_t j) {
    return side.stride ? (const char *)side.at + j * side.stride
                       : ((const char *const *)side.at)[j];
}
