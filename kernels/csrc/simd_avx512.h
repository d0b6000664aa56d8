// `simd.h` for AVX-512: vectors of sixteen. Included by that alone.
#pragma once

namespace {

constexpr int W = 16, REGISTERS = 32;
using vf = __m512;
typedef uint32_t vu __attribute__((vector_size(64)));

inline vu rounded(vf v) {
    const vu bits = (vu)v;
    const vu near = bits + 0x7fffu + ((bits >> 16) & 1u);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_set1_epi32(0x400000);
    return (vu)_mm512_mask_or_epi32((__m512i)near, nan, (__m512i)bits, quiet);
}
inline float sum(vf v) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 few = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    few = _mm_add_ps(few, _mm_movehl_ps(few, few));
    return _mm_cvtss_f32(_mm_add_ss(few, _mm_shuffle_ps(few, few, 1)));
}

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
inline vf larger(vf a, vf b) { return _mm512_max_ps(a, b); }
inline float largest(vf v) { return _mm512_reduce_max_ps(v); }
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
inline vf lanes_of_all(const vf *v) {
    const vf ab = _mm512_shuffle_f32x4(v[0], v[1], 0x44) + _mm512_shuffle_f32x4(v[0], v[1], 0xee);
    const vf cd = _mm512_shuffle_f32x4(v[2], v[3], 0x44) + _mm512_shuffle_f32x4(v[2], v[3], 0xee);
    return _mm512_shuffle_f32x4(ab, cd, 0x88) + _mm512_shuffle_f32x4(ab, cd, 0xdd);
}
inline vf absolute(vf v) { return _mm512_abs_ps(v); }
inline vf by_sign(vf x, vf v, vf w) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, set(0.0f), _CMP_LT_OQ), v, w);
}

}  // namespace
