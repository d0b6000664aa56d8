// The products of prefill attention on AArch64's BFMMLA (`attention_prefill.h` has the rest).
//
// One instruction multiplies two rows of four bfloat16 with two columns of four, into four sums. So
// B lies in fours: [depth / 4][column][4 of that column].
#pragma once

#include "attention_prefill.h"

namespace {

struct Fours {
    using Query = uint16_t;
    static int64_t query_width(int64_t dim) { return rounded_up(dim, 8); }
    static int64_t value_width(int64_t dim) { return rounded_up(dim, 8); }
    static int64_t key_bytes(int64_t dim) { return 2 * query_width(dim) * BLOCK_KEYS; }
    static int64_t value_bytes(int64_t dim) { return 2 * value_width(dim) * BLOCK_KEYS; }

    static void begin(char *) {}
    static void end(const char *) {}

    static void pack_query(const bf16 *from, int64_t dim, uint16_t *to) {
        memcpy(to, from, static_cast<size_t>(dim) * 2);  // what follows is zero already
    }
    // Depth: dims; columns: keys. Absent keys and dims are zero.
    static void pack_keys(const bf16 *const *key, int64_t n, int64_t dim, char *to) {
        const int64_t width = query_width(dim);
        for (int64_t k = 0; k < BLOCK_KEYS; ++k) {
            for (int64_t i = 0; i < width; i += 4) {
                char *at = to + (i * BLOCK_KEYS + 4 * k) * 2;
                const int64_t left = k < n ? dim - i : 0;
                if (left >= 4) {
                    memcpy(at, key[k] + i, 8);
                } else {
                    memset(at, 0, 8);
                    if (left > 0) memcpy(at, key[k] + i, static_cast<size_t>(left) * 2);
                }
            }
        }
    }
    // Depth: keys; columns: dims.
    static void pack_values(const bf16 *const *value, int64_t n, int64_t dim, char *to) {
        const int64_t width = value_width(dim);
        uint16_t *out = reinterpret_cast<uint16_t *>(to);
        for (int64_t k = 0; k < BLOCK_KEYS; k += 4) {
            for (int64_t i = 0; i < width; i += 8) {
                uint16x8x4_t v;
                for (int j = 0; j < 4; ++j)
                    v.val[j] = k + j < n ? Dots<bf16>::some(value[k + j] + i, dim - i)
                                         : vdupq_n_u16(0);
                vst4q_u16(out + k * width + 4 * i, v);
            }
        }
    }

    static void scores(int64_t rows, const uint16_t *q, int64_t dim, const char *keys, float *s) {
        const int64_t width = query_width(dim);
        product<false>(rows, q, width, keys, BLOCK_KEYS, s, width);
    }
    static void keep_weight(float *, vf weight, char *to) {
        store(reinterpret_cast<bf16 *>(to), weight);
    }
    static void weighted(int64_t rows, const float *, const char *weights, const char *values,
                         int64_t dim, float *o) {
        product<true>(rows, reinterpret_cast<const uint16_t *>(weights), BLOCK_KEYS, values,
                      value_width(dim), o, BLOCK_KEYS);
    }

    // C [rows, columns] = (ADD ? C : 0) + A [rows, depth] . B; columns and depth are multiples of 8.
    // Rows are computed by eight: there is room for ABREAST, no matter what lies there.
    template <bool ADD>
    static void product(int64_t rows, const uint16_t *a, int64_t a_width, const char *b,
                        int64_t columns, float *c, int64_t depth) {
        const uint16_t *fours = reinterpret_cast<const uint16_t *>(b);
        for (int64_t i = 0; i < columns; i += 8)
            for (int64_t r = 0; r < rows; r += 8)
                square<ADD>(a + r * a_width, a_width, fours + 4 * i, columns, c + r * columns + i,
                            depth);
    }

    static vf first_halves(vf a, vf b) {
        return vreinterpretq_f32_u64(
            vzip1q_u64(vreinterpretq_u64_f32(a), vreinterpretq_u64_f32(b)));
    }
    static vf second_halves(vf a, vf b) {
        return vreinterpretq_f32_u64(
            vzip2q_u64(vreinterpretq_u64_f32(a), vreinterpretq_u64_f32(b)));
    }
    static bfloat16x8_t eight(const uint16_t *from) {
        return vreinterpretq_bf16_u16(vld1q_u16(from));
    }

    // 8 x 8 of C: sums[pair of rows][pair of columns] hold a 2 x 2 each.
    template <bool ADD>
    static void square(const uint16_t *a, int64_t a_width, const uint16_t *b, int64_t columns,
                       float *c, int64_t depth) {
        vf sums[4][4];
        for (int r = 0; r < 4; ++r) {
            for (int h = 0; h < 2; ++h) {
                const float *at = c + 2 * r * columns + 4 * h;
                const vf above = ADD ? load(at) : set(0.0f);
                const vf below = ADD ? load(at + columns) : set(0.0f);
                sums[r][2 * h] = first_halves(above, below);
                sums[r][2 * h + 1] = second_halves(above, below);
            }
        }
        for (int64_t k = 0; k < depth; k += 8) {
            bfloat16x8_t x[4][2];  // of each pair of rows, the first four of depth and the second
            for (int r = 0; r < 4; ++r) {
                const uint16_t *at = a + 2 * r * a_width + k;
                const uint64x2_t above = vreinterpretq_u64_u16(vld1q_u16(at));
                const uint64x2_t below = vreinterpretq_u64_u16(vld1q_u16(at + a_width));
                x[r][0] = vreinterpretq_bf16_u64(vzip1q_u64(above, below));
                x[r][1] = vreinterpretq_bf16_u64(vzip2q_u64(above, below));
            }
            for (int half = 0; half < 2; ++half) {
                const uint16_t *at = b + (k + 4 * half) * columns;
                for (int j = 0; j < 4; ++j) {
                    const bfloat16x8_t y = eight(at + 8 * j);
                    for (int r = 0; r < 4; ++r)
                        sums[r][j] = vbfmmlaq_f32(sums[r][j], x[r][half], y);
                }
            }
        }
        for (int r = 0; r < 4; ++r) {
            for (int h = 0; h < 2; ++h) {
                float *at = c + 2 * r * columns + 4 * h;
                store(at, first_halves(sums[r][2 * h], sums[r][2 * h + 1]));
                store(at + columns, second_halves(sums[r][2 * h], sums[r][2 * h + 1]));
            }
        }
    }
};

}  // namespace
