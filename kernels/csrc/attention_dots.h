// The products of one query row's attention: a block of keys with the query heads that share them.
// Softmax and pages are `attention_decode.h`'s.
#pragma once

#include "fused_body.h"

namespace {

// Elements of a head's O, with its padding to pairs of vectors.
inline int64_t padded(int64_t dim) { return (dim + 2 * W - 1) / (2 * W) * 2 * W; }

// The products of a block of W keys with G query heads, in float32.
template <class T>
struct Dots {
    using Query = float;

    static void take_query(const T *from, int64_t dim, float *to) {
        for (int64_t i = 0; i < dim; i += W)
            store(to + i, take(from + i, dim - i < W ? static_cast<int>(dim - i) : W));
    }

    // Scores of n keys, one vector a head; lanes past n are of no use. q: [G, padded].
    template <int G>
    static void scores(const float *q, const T *const *key, int n, int64_t dim, vf *out) {
        vf found[G][W / 4];
        const int64_t step = padded(dim);
#pragma GCC unroll 1
        for (int four = 0; four < W / 4; ++four) {
            vf s[G][4];
            for (int g = 0; g < G; ++g)
                for (int k = 0; k < 4; ++k) s[g][k] = set(0.0f);
            const T *const *here = key + 4 * four;
            const int left = n - 4 * four;
            over(dim, [&](int64_t i, int m) {
                for (int k = 0; k < 4; ++k) {
                    if (k >= left) break;
                    const vf v = take(here[k] + i, m);
                    for (int g = 0; g < G; ++g) s[g][k] = fma(load(q + g * step + i), v, s[g][k]);
                }
            });
            for (int g = 0; g < G; ++g)
                found[g][four] = lanes_of_four(s[g][0], s[g][1], s[g][2], s[g][3]);
        }
        for (int g = 0; g < G; ++g) out[g] = lanes_of_all(found[g]);
    }

    // O [G, padded] += p · V of n keys.
    template <int G>
    static void weighted(const vf *p, const T *const *value, int n, int64_t dim, float *o) {
        alignas(64) float weight[G * W];
        for (int g = 0; g < G; ++g) store(weight + g * W, p[g]);
        int64_t i = 0;
        for (; i + 2 * W <= dim; i += 2 * W) columns<G, 2>(weight, value, n, i, W, padded(dim), o);
        for (; i < dim; i += W) {
            const int last = dim - i < W ? static_cast<int>(dim - i) : W;
            columns<G, 1>(weight, value, n, i, last, padded(dim), o);
        }
    }

    // D vectors of a head from element `at` on, the last one of `last` elements.
    template <int G, int D>
    static void columns(const float *weight, const T *const *value, int n, int64_t at, int last,
                        int64_t step, float *o) {
        vf sum[G][D];
        for (int g = 0; g < G; ++g)
            for (int d = 0; d < D; ++d) sum[g][d] = load(o + g * step + at + d * W);
#pragma GCC unroll 1
        for (int k = 0; k < n; ++k) {
            for (int d = 0; d < D; ++d) {
                const T *from = value[k] + at + d * W;
                const vf v = d + 1 < D ? load(from) : take(from, last);
                for (int g = 0; g < G; ++g) sum[g][d] = fma(set(weight[g * W + k]), v, sum[g][d]);
            }
        }
        for (int g = 0; g < G; ++g)
            for (int d = 0; d < D; ++d) store(o + g * step + at + d * W, sum[g][d]);
    }

    static void in_order(float *, int64_t) {}
};

#if defined(__AVX512BF16__)
// The same with the instruction for pairs of bfloat16: no widening, half the multiplications.
// Weights are rounded to bfloat16. O is kept in the order that interleaving two keys gives.
template <>
struct Dots<bf16> {
    using Query = bf16;

    static __m512i some(const bf16 *from, int64_t left) {
        if (left >= 32) return _mm512_loadu_si512(from);
        return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1u << left) - 1), from);
    }
    static vf dot(vf sum, __m512i a, __m512i b) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }

    static void take_query(const bf16 *from, int64_t dim, bf16 *to) {
        memset(to, 0, static_cast<size_t>(padded(dim)) * 2);
        memcpy(to, from, static_cast<size_t>(dim) * 2);
    }

    template <int G>
    static void scores(const bf16 *q, const bf16 *const *key, int n, int64_t dim, vf *out) {
        vf found[G][4];
        const int64_t step = padded(dim);
#pragma GCC unroll 1
        for (int four = 0; four < 4; ++four) {
            vf s[G][4];
            for (int g = 0; g < G; ++g)
                for (int k = 0; k < 4; ++k) s[g][k] = set(0.0f);
            const bf16 *const *here = key + 4 * four;
            const int left = n - 4 * four;
            for (int64_t i = 0; i < dim; i += 32) {
                for (int k = 0; k < 4; ++k) {
                    if (k >= left) break;
                    const __m512i v = some(here[k] + i, dim - i);
                    for (int g = 0; g < G; ++g)
                        s[g][k] = dot(s[g][k], v, _mm512_loadu_si512(q + g * step + i));
                }
            }
            for (int g = 0; g < G; ++g)
                found[g][four] = lanes_of_four(s[g][0], s[g][1], s[g][2], s[g][3]);
        }
        for (int g = 0; g < G; ++g) out[g] = lanes_of_all(found[g]);
    }

    template <int G>
    static void weighted(const vf *p, const bf16 *const *value, int n, int64_t dim, float *o) {
        alignas(64) int32_t pairs[G][8];
        for (int g = 0; g < G; ++g)
            _mm256_store_si256(reinterpret_cast<__m256i *>(pairs[g]),
                               reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(p[g])));
        const int64_t step = padded(dim);
        int64_t i = 0;
        for (; i + 32 < dim; i += 64) columns<G, 2>(pairs, value, n, i, dim, step, o);
        for (; i < dim; i += 32) columns<G, 1>(pairs, value, n, i, dim, step, o);
    }

    // 32 D elements from `at` on.
    template <int G, int D>
    static void columns(const int32_t (*pairs)[8], const bf16 *const *value, int n, int64_t at,
                        int64_t dim, int64_t step, float *o) {
        vf sum[G][2 * D];
        for (int g = 0; g < G; ++g)
            for (int d = 0; d < 2 * D; ++d) sum[g][d] = load(o + g * step + at + d * W);
#pragma GCC unroll 1
        for (int k = 0; k < n; k += 2) {
            for (int d = 0; d < D; ++d) {
                const int64_t i = at + 32 * d;
                const __m512i a = some(value[k] + i, dim - i);
                const __m512i b =
                    k + 1 < n ? some(value[k + 1] + i, dim - i) : _mm512_setzero_si512();
                const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
                for (int g = 0; g < G; ++g) {
                    const __m512i weight = _mm512_set1_epi32(pairs[g][k / 2]);
                    sum[g][2 * d] = dot(sum[g][2 * d], low, weight);
                    sum[g][2 * d + 1] = dot(sum[g][2 * d + 1], high, weight);
                }
            }
        }
        for (int g = 0; g < G; ++g)
            for (int d = 0; d < 2 * D; ++d) store(o + g * step + at + d * W, sum[g][d]);
    }

    // One head's O, from the order of interleaved keys to that of its elements.
    static void in_order(float *o, int64_t dim) {
        const __m512i first =
            _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
        for (int64_t i = 0; i < dim; i += 32) {
            const vf low = load(o + i), high = load(o + i + 16);
            store(o + i, _mm512_permutex2var_ps(low, first, high));
            store(o + i + 16, _mm512_permutex2var_ps(low, second, high));
        }
    }
};
#endif

}  // namespace

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include "attention_bfdot.h"
#endif
