// What packing an adapter's file is told. Declares; computes nothing. kernels/cpu_pack.py fills it.
//
// Semantics: of every side of a linear (A [rank, in] or B [out, rank], fp32, bf16 or fp16 in the
// file), row r of A, or column r of B times `scale`, becomes row r of a block in the image, rounded
// once, to nearest, ties to even. All other bytes of the image become zero.
#pragma once
#include "common.h"

// Where a side lies in the file, row-major, and which `spans` its block has. `turned`: its columns
// are the block's rows.
struct TsPackSide {
    int64_t from, dtype, rows, columns, turned;
    int64_t row_bytes, first_span, spans;
};

// Rows first_row .. first_row + rows of a block, from byte `at` of the image on. Those of all sides,
// one side after the other, follow each other in the image.
struct TsPackSpan {
    int64_t first_row, rows, at;
};

// `dtype` is the image's, `scales` one a side. `scratch`: 64-byte aligned, three times `chunk_bytes`,
// which hold at least one row of every side and are a multiple of 64. `nicer`: run on a thread of its
// own that is so much nicer, where the system has that (Linux).
// Told: `most`, the largest size of each side's values, NaN where one is not finite; a checksum of the
// sides' bytes in the file, in their order; the byte at which the file `ended` too soon; the errno of
// a read that `failed`.
struct TsPack {
    int64_t isa, dtype, nicer, fd, count;
    const TsPackSide *sides;
    const TsPackSpan *spans;
    const float *scales;
    char *image;
    int64_t image_bytes;
    char *scratch;
    int64_t chunk_bytes;
    float *most;
    uint64_t checksum;
    int64_t ended, failed;
};

// 0: all is packed; 1: `ended`; 2: `failed`.
int pack_plain(TsPack &);
int pack_avx2(TsPack &);
