// Vectors of W floats for the instruction set a file is compiled for, as the few operations that the
// kernels need, and arrays of fp32, bf16 or fp16 read into them. Arithmetic is always fp32.
#pragma once
#include <string.h>

#include "common.h"

#if defined(__AVX2__)
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
// GCC's own header initialises a variable with itself where the value does not matter.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#endif

namespace {

struct bf16 {
    uint16_t bits;
};
struct f16 {
    uint16_t bits;
};

#if defined(__AVX512F__)
constexpr int W = 16;
using vf = __m512;
#elif defined(__AVX2__)
constexpr int W = 8;
using vf = __m256;
#else  // any other CPU: vectors of four, which every compiler knows
constexpr int W = 4;
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
#endif
typedef uint32_t vu __attribute__((vector_size(4 * W)));

// Nearest bf16, ties to even, in the upper half of each lane; a NaN stays one.
inline vu rounded(vf v) {
    const vu bits = (vu)v;
    const vu near = bits + 0x7fffu + ((bits >> 16) & 1u);
#if defined(__AVX512F__)
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_set1_epi32(0x400000);
    return (vu)_mm512_mask_or_epi32((__m512i)near, nan, (__m512i)bits, quiet);
#else
    const vu nan = (vu)(v != v);
    return (near & ~nan) | ((bits | 0x400000u) & nan);
#endif
}

// Always the same tree, so that a sum's bits depend on its addends alone.
inline float sum(vf v) {
#if defined(__AVX512F__)
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#elif defined(__AVX2__)
    const __m256 half = v;
#endif
#if defined(__AVX2__)
    __m128 few = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    few = _mm_add_ps(few, _mm_movehl_ps(few, few));
    return _mm_cvtss_f32(_mm_add_ss(few, _mm_shuffle_ps(few, few, 1)));
#else
    return (v[0] + v[2]) + (v[1] + v[3]);
#endif
}

#if defined(__AVX512F__)

inline vf set(float x) { return _mm512_set1_ps(x); }
inline vf load(const float *p) { return _mm512_loadu_ps(p); }
inline vf load(const bf16 *p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline vf load(const f16 *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
}
inline void store(float *p, vf v) { _mm512_storeu_ps(p, v); }
inline void store(bf16 *p, vf v) {
#if defined(__AVX512BF16__)
    const __m256i half = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));  // subnormals become zero
#else
    const __m256i half = _mm512_cvtepi32_epi16((__m512i)(rounded(v) >> 16));
#endif
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), half);
}
inline void store(f16 *p, vf v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(v, 0));
}
inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
// The second operand wins where one is NaN.
inline vf larger(vf a, vf b) { return _mm512_max_ps(a, b); }
inline float largest(vf v) { return _mm512_reduce_max_ps(v); }
// The first n lanes of v, `other` in the rest.
inline vf first_lanes(vf v, int n, float other) {
    const __mmask16 mask = n >= W ? 0xffff : static_cast<__mmask16>((1u << (n < 0 ? 0 : n)) - 1);
    return _mm512_mask_blend_ps(mask, set(other), v);
}
inline vf nearest(vf v) { return _mm512_roundscale_ps(v, 0); }
inline vf times_power_of_two(vf v, vf n) { return _mm512_scalef_ps(v, n); }

inline vf lanes_of_four(vf a, vf b, vf c, vf d) {  // within each quarter: sums of a, b, c, d
    const vf ab = _mm512_unpacklo_ps(a, b) + _mm512_unpackhi_ps(a, b);
    const vf cd = _mm512_unpacklo_ps(c, d) + _mm512_unpackhi_ps(c, d);
    const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_castpd_ps(_mm512_unpacklo_pd(x, y)) + _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
}
// Of W / 4 answers of `lanes_of_four`, one vector: the sums of all W, in order.
inline vf lanes_of_all(const vf *v) {
    const vf ab = _mm512_shuffle_f32x4(v[0], v[1], 0x44) + _mm512_shuffle_f32x4(v[0], v[1], 0xee);
    const vf cd = _mm512_shuffle_f32x4(v[2], v[3], 0x44) + _mm512_shuffle_f32x4(v[2], v[3], 0xee);
    return _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xdd);
}
inline vf absolute(vf v) { return _mm512_abs_ps(v); }
// v where x >= 0 or NaN, else w.
inline vf by_sign(vf x, vf v, vf w) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, set(0.0f), _CMP_LT_OQ), v, w);
}

#elif defined(__AVX2__)

inline vf set(float x) { return _mm256_set1_ps(x); }
inline vf load(const float *p) { return _mm256_loadu_ps(p); }
inline vf load(const bf16 *p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
inline vf load(const f16 *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}
inline void store(float *p, vf v) { _mm256_storeu_ps(p, v); }
inline void store(bf16 *p, vf v) {
    const __m256i kept = (__m256i)(rounded(v) >> 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(kept, kept), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_castsi256_si128(packed));
}
inline void store(f16 *p, vf v) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, 0));
}
inline vf fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
inline vf larger(vf a, vf b) { return _mm256_max_ps(a, b); }
inline float largest(vf v) {
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_shuffle_ps(h, h, 1)));
}
inline vf first_lanes(vf v, int n, float other) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
    return _mm256_blendv_ps(set(other), v, _mm256_castsi256_ps(keep));
}
inline vf nearest(vf v) { return _mm256_round_ps(v, 0); }
inline vf power_of_two(__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
}
inline vf times_power_of_two(vf v, vf n) {  // in two halves: 2^n alone may not be a float
    const __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1);
    return v * power_of_two(half) * power_of_two(_mm256_sub_epi32(e, half));
}

inline vf lanes_of_four(vf a, vf b, vf c, vf d) {
    const vf ab = _mm256_unpacklo_ps(a, b) + _mm256_unpackhi_ps(a, b);
    const vf cd = _mm256_unpacklo_ps(c, d) + _mm256_unpackhi_ps(c, d);
    const __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
    return _mm256_castpd_ps(_mm256_unpacklo_pd(x, y)) + _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
}
inline vf lanes_of_all(const vf *v) {
    return _mm256_permute2f128_ps(v[0], v[1], 0x20) + _mm256_permute2f128_ps(v[0], v[1], 0x31);
}
inline vf absolute(vf v) { return _mm256_andnot_ps(set(-0.0f), v); }
inline vf by_sign(vf x, vf v, vf w) {
    return _mm256_blendv_ps(v, w, _mm256_cmp_ps(x, set(0.0f), _CMP_LT_OQ));
}

#else

inline float widened(bf16 x) {
    const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
inline float widened(f16 x) {
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
    const uint32_t exponent = (x.bits >> 10) & 31, fraction = x.bits & 0x3ff;
    float f;
    if (exponent == 0) {
        f = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
        return sign ? -f : f;
    }
    const uint32_t e = exponent == 31 ? 255 : exponent + 112;
    const uint32_t bits = sign | (e << 23) | (fraction << 13);
    memcpy(&f, &bits, 4);
    return f;
}
inline bf16 narrowed(float f, bf16) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (f != f) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
    return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
inline f16 narrowed(float f, f16) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    const float size = __builtin_fabsf(f);
    if (!(size < 65520.0f)) return {static_cast<uint16_t>(sign | (f != f ? 0x7e00 : 0x7c00))};
    if (size < 6.103515625e-5f) {  // 2^-14: subnormal, in steps of 2^-24
        const uint16_t steps = static_cast<uint16_t>(__builtin_nearbyintf(size * 16777216.0f));
        return {static_cast<uint16_t>(sign | steps)};
    }
    bits &= 0x7fffffff;
    bits += 0xfff + ((bits >> 13) & 1);
    return {static_cast<uint16_t>(sign | ((bits - (112u << 23)) >> 13))};
}

inline vf set(float x) { return vf{x, x, x, x}; }
inline vf load(const float *p) { return vf{p[0], p[1], p[2], p[3]}; }
template <class T>
inline vf load(const T *p) {
    return vf{widened(p[0]), widened(p[1]), widened(p[2]), widened(p[3])};
}
inline void store(float *p, vf v) { memcpy(p, &v, sizeof v); }
template <class T>
inline void store(T *p, vf v) {
    for (int i = 0; i < W; ++i) p[i] = narrowed(v[i], T{});
}
inline vf fma(vf a, vf b, vf c) { return a * b + c; }
inline vf larger(vf a, vf b) { return a > b ? a : b; }
inline float largest(vf v) {
    float best = v[0];
    for (int i = 1; i < W; ++i) best = v[i] > best ? v[i] : best;
    return best;
}
inline vf first_lanes(vf v, int n, float other) {
    for (int i = 0; i < W; ++i) {
        if (i >= n) v[i] = other;
    }
    return v;
}
inline vf nearest(vf v) {
    const vf magic = set(12582912.0f);  // 1.5 * 2^23: what is added to it loses its fraction
    return (v + magic) - magic;
}
inline vf power_of_two(vi e) {
    const vi bits = (e + 127) << 23;
    vf power;
    memcpy(&power, &bits, sizeof power);
    return power;
}
inline vf times_power_of_two(vf v, vf n) {  // in two halves: 2^n alone may not be a float
    const vi e = __builtin_convertvector(n, vi), half = e >> 1;
    return v * power_of_two(half) * power_of_two(e - half);
}
inline vf lanes_of_four(vf a, vf b, vf c, vf d) { return vf{sum(a), sum(b), sum(c), sum(d)}; }
inline vf lanes_of_all(const vf *v) { return v[0]; }
inline vf absolute(vf v) { return v < 0.0f ? -v : v; }
inline vf by_sign(vf x, vf v, vf w) { return x < 0.0f ? w : v; }

#endif

// n < W elements: memory past them is not touched, the other lanes are zero.
template <class T>
inline vf load_some(const T *p, int n) {
    T whole[W] = {};
    memcpy(whole, p, n * sizeof(T));
    return load(whole);
}
template <class T>
inline void store_some(T *p, vf v, int n) {
    T whole[W];
    store(whole, v);
    memcpy(p, whole, n * sizeof(T));
}

// Calls each(first, count) on vectors of W elements over n, the last one shorter.
template <class Each>
inline void over(int64_t n, Each each) {
    int64_t i = 0;
    for (; i + W <= n; i += W) each(i, W);
    if (i < n) each(i, static_cast<int>(n - i));
}
template <class T>
inline vf take(const T *p, int n) {
    return n == W ? load(p) : load_some(p, n);
}
template <class T>
inline void put(T *p, vf v, int n) {
    if (n == W) {
        store(p, v);
    } else {
        store_some(p, v, n);
    }
}

}  // namespace
