// Vectors of W floats for the instruction set a file is compiled for, and rows of fp32, bf16 or fp16
// read into them. Arithmetic is always fp32.
//
// Elements come in twos of vectors, 2 W at a time: bf16's even elements are one vector and its odd
// ones the other (a shift and a mask; no lane is crossed), fp32's and fp16's are the first and the
// second half. What is loaded so, added up element by element, and stored so, is in order again.
#pragma once
#include <string.h>

#include "common.h"

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vf __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));

static inline vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

static inline vf spread(float v) { return v - (vf){}; }

// Always the same tree, so that a sum's bits depend on its addends alone.
static inline float sum(vf v) {
#if defined(__AVX512F__)
    const __m512 wide = (__m512)v;
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(wide), _mm512_extractf32x8_ps(wide, 1));
#elif defined(__AVX2__)
    const __m256 half = (__m256)v;
#endif
#if defined(__AVX2__)
    __m128 few = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    few = _mm_add_ps(few, _mm_movehl_ps(few, few));
    return _mm_cvtss_f32(_mm_add_ss(few, _mm_shuffle_ps(few, few, 1)));
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

template <class V>
static inline V read(const void *p) {
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Nearest bf16, ties to even, in the upper half of each lane; NaN stays NaN.
static inline vu rounded(vf v) {
    const vu bits = (vu)v;
    const vu near = bits + 0x7fffu + ((bits >> 16) & 1u);
    const vu nan = (vu)(v != v);
    return (near & ~nan) | (0x7fc00000u & nan);
}

template <int D>
struct Row;

template <>
struct Row<TS_FP32> {
    typedef float T;
    static inline void load(const T *p, vf &lo, vf &hi) {
        lo = read<vf>(p);
        hi = read<vf>(p + W);
    }
    static inline void store(T *p, vf lo, vf hi) {
        memcpy(p, &lo, sizeof lo);
        memcpy(p + W, &hi, sizeof hi);
    }
};

template <>
struct Row<TS_BF16> {
    typedef uint16_t T;
    static inline void load(const T *p, vf &lo, vf &hi) {
        const vu both = read<vu>(p);
        lo = (vf)(both << 16);
        hi = (vf)(both & 0xffff0000u);
    }
    static inline void store(T *p, vf lo, vf hi) {
        const vu both = (rounded(lo) >> 16) | (rounded(hi) & 0xffff0000u);
        memcpy(p, &both, sizeof both);
    }
};

// Eight-bit exponents convert by instruction only: plain machines leave fp16 to torch.
#if defined(__F16C__)
template <>
struct Row<TS_FP16> {
    typedef uint16_t T;
#if defined(__AVX512F__)
    static inline vf one(const T *p) { return (vf)_mm512_cvtph_ps(read<__m256i>(p)); }
    static inline void put(T *p, vf v) {
        const __m256i half = _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
        memcpy(p, &half, sizeof half);
    }
#else
    static inline vf one(const T *p) { return (vf)_mm256_cvtph_ps(read<__m128i>(p)); }
    static inline void put(T *p, vf v) {
        const __m128i half = _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
        memcpy(p, &half, sizeof half);
    }
#endif
    static inline void load(const T *p, vf &lo, vf &hi) {
        lo = one(p);
        hi = one(p + W);
    }
    static inline void store(T *p, vf lo, vf hi) {
        put(p, lo);
        put(p + W, hi);
    }
};
#endif

// The first n < 2 W elements, zeros after them: nothing beyond a row is read.
template <int D>
static inline void load_first(const typename Row<D>::T *p, int64_t n, vf &lo, vf &hi) {
    typename Row<D>::T some[2 * W] = {};
    memcpy(some, p, (size_t)n * sizeof *p);
    Row<D>::load(some, lo, hi);
}

template <int D>
static inline void store_first(typename Row<D>::T *p, int64_t n, vf lo, vf hi) {
    typename Row<D>::T some[2 * W];
    Row<D>::store(some, lo, hi);
    memcpy(p, some, (size_t)n * sizeof *p);
}

}  // namespace
