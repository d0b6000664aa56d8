// `simd.h` for AArch64, every one of which has NEON: vectors of four. Included by that alone.
#pragma once

namespace {

constexpr int W = 4, REGISTERS = 32;
using vf = float32x4_t;
typedef uint32_t vu __attribute__((vector_size(16)));

inline vu rounded(vf v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t near = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return (vu)vbslq_u32(vceqq_f32(v, v), near, quiet);
}
inline float sum(vf v) { return vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v))); }

inline vf set(float x) { return vdupq_n_f32(x); }
inline vf load(const float *p) { return vld1q_f32(p); }
inline vf load(const bf16 *p) {
    const uint16x4_t half = vld1_u16(reinterpret_cast<const uint16_t *>(p));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}
inline vf load(const f16 *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t *>(p))));
}
inline void store(float *p, vf v) { vst1q_f32(p, v); }
inline void store(bf16 *p, vf v) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    const uint16x4_t half = vreinterpret_u16_bf16(vcvt_bf16_f32(v));
#else
    const uint16x4_t half = vshrn_n_u32((uint32x4_t)rounded(v), 16);
#endif
    vst1_u16(reinterpret_cast<uint16_t *>(p), half);
}
inline void store(f16 *p, vf v) {
    vst1_u16(reinterpret_cast<uint16_t *>(p), vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
inline vf fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
inline vf larger(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline float largest(vf v) { return vmaxnmvq_f32(v); }
inline vf first_lanes(vf v, int n, float other) {
    const int32x4_t lane = {0, 1, 2, 3};
    return vbslq_f32(vcltq_s32(lane, vdupq_n_s32(n)), v, set(other));
}
inline vf nearest(vf v) { return vrndnq_f32(v); }
inline vf power_of_two(int32x4_t e) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
}
inline vf times_power_of_two(vf v, vf n) {  // in two halves: 2^n alone may not be a float
    const int32x4_t e = vcvtq_s32_f32(n), half = vshrq_n_s32(e, 1);
    return vmulq_f32(vmulq_f32(v, power_of_two(half)), power_of_two(vsubq_s32(e, half)));
}

inline vf lanes_of_four(vf a, vf b, vf c, vf d) {
    return vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d));
}
inline vf lanes_of_all(const vf *v) { return v[0]; }
inline vf absolute(vf v) { return vabsq_f32(v); }
inline vf by_sign(vf x, vf v, vf w) { return vbslq_f32(vcltq_f32(x, set(0.0f)), w, v); }

}  // namespace
