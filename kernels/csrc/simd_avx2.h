// `simd.h` for AVX2, with FMA and F16C: vectors of eight. Included by that alone.
#pragma once

namespace {

constexpr int W = 8, REGISTERS = 16;
using vf = __m256;
typedef uint32_t vu __attribute__((vector_size(32)));

inline vu rounded(vf v) {
    const vu bits = (vu)v;
    const vu near = bits + 0x7fffu + ((bits >> 16) & 1u);
    const vu nan = (vu)(v != v);
    return (near & ~nan) | ((bits | 0x400000u) & nan);
}
inline float sum(vf v) {
    __m128 few = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    few = _mm_add_ps(few, _mm_movehl_ps(few, few));
    return _mm_cvtss_f32(_mm_add_ss(few, _mm_shuffle_ps(few, few, 1)));
}

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

}  // namespace
